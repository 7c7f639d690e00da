import dataclasses
from pathlib import Path

import pytest
import torch
from tiny_policies import STATE, policy, save

from tpsrl.errors import UserError
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.run import checkpoint, halving
from tpsrl.rl.run.checkpoint import Checkpoint

SEPARATE = dataclasses.replace(STATE, separate_value=True)
CAMERA = dataclasses.replace(STATE, encoder="se_resnet9", encoder_width=4, visual_width=8)
TOLERANCE = 0.02


def halved(path: Path) -> tuple[Checkpoint, ActorCritic]:
    tensors, note = halving.halved(checkpoint.load(path, "policy"))
    found = Checkpoint(path, tensors, note)
    return found, checkpoint.load_policy(found)


@pytest.mark.parametrize("network", [STATE, SEPARATE, CAMERA])
def test_a_policy_of_half_precision_acts_the_same_within_a_tolerance(
    tmp_path: Path, network: object
) -> None:
    depth = (32, 48) if network is CAMERA else None
    whole, deploy = policy("pick", "full", network, depth)  # type: ignore[arg-type]
    found, half = halved(save(tmp_path / "a", whole, deploy))
    assert {tensor.dtype for tensor in found.tensors.values()} == {torch.float16}
    assert halving.is_half(found.tensors) and not halving.is_half(whole.state_dict())
    assert {weights.dtype for weights in half.parameters()} == {torch.float32}
    assert 0.0 < halving.difference(whole, half) < TOLERANCE
    assert halving.difference(whole, whole) == 0.0


def test_only_a_few_large_images_are_compared(tmp_path: Path) -> None:
    made, _ = policy("pick", "full", CAMERA, (32, 48))
    drawn: list[torch.Size] = []
    assert made.trunk.encoder is not None
    made.trunk.encoder.register_forward_hook(lambda _, given, __: drawn.append(given[0].shape))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(halving, "_MOST_DRAWN", 3 * 32 * 48)
        assert halving.difference(made, made, steps=1) == 0.0
    assert set(drawn) == {(3, 32, 48)}


def test_policies_that_act_differently_have_a_large_difference(tmp_path: Path) -> None:
    one, _ = policy("pick")
    other, _ = policy("pick", seed=2)
    assert halving.difference(one, other) > 0.3
    # Wrong recurrent weights have an effect only after some steps.
    forgetful, _ = policy("pick")
    recurrent = forgetful.trunk.recurrent
    assert recurrent is not None
    with torch.no_grad():
        for name, weights in recurrent.named_parameters():
            if "weight_hh" in name:
                weights.zero_()
    assert halving.difference(one, forgetful, steps=1) == 0.0
    assert halving.difference(one, forgetful) > TOLERANCE


def test_a_separate_value_network_is_left_out(tmp_path: Path) -> None:
    whole, deploy = policy("pick", network=SEPARATE)
    found, half = halved(save(tmp_path / "a", whole, deploy))
    assert not any("value_trunk" in name for name in found.tensors)
    assert half.memory_size == whole.memory_size // 2
    assert not half.value_head.weight.any()
    shared, deploy = policy("pick")
    _, half = halved(save(tmp_path / "b", shared, deploy))
    assert (half.value_head.weight - shared.value_head.weight).abs().max() < 1e-3


def test_a_weight_too_large_for_half_precision_is_refused(tmp_path: Path) -> None:
    whole, deploy = policy("pick")
    with torch.no_grad():
        whole.action_head.mean.bias[0] = 1e5
    with pytest.raises(UserError, match=r"action_head.mean.bias does not fit into half precision"):
        halved(save(tmp_path / "a", whole, deploy))


def test_a_digest_differs_between_policies_and_is_unchanged_by_halving(tmp_path: Path) -> None:
    whole, deploy = policy("pick", network=SEPARATE)
    _, half = halved(save(tmp_path / "a", whole, deploy))
    same = halving.digest(whole, deploy)
    assert halving.digest(half, deploy) == same
    assert halving.digest(whole, {**deploy, "sample": False}) != same
    with torch.no_grad():
        whole.action_head.mean.bias[0] += 0.1
    assert halving.digest(whole, deploy) != same


def test_only_the_requested_part_of_a_checkpoint_is_read(tmp_path: Path) -> None:
    tensors = {"policy.a": torch.zeros(2), "ppo.b": torch.zeros(3), "policyholder.c": torch.ones(1)}
    checkpoint.save(tmp_path / "a", tensors, {})
    assert list(checkpoint.load(tmp_path / "a", "policy").tensors) == ["policy.a"]
    assert checkpoint.load(tmp_path / "a").tensors.keys() == tensors.keys()
