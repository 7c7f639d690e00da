import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import tpsrl
from skills.demos.cloning import was_stopped
from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.rl.run import checkpoint
from tpsrl.rl.run.trainer import load_latest
from tpsrl.training import run

SPEC = EnvSpec({"state": (5,)}, (True, True, False))
SMALL = PolicySettings(encoder="state", lstm_layers=1, lstm_width=8, state_width=8)


def saved(path: Path) -> Path:
    tensors, note = checkpoint.policy_part(ActorCritic(SPEC, SMALL))
    checkpoint.save(path, tensors, note)
    return path


def test_tensors_of_all_dtypes_and_the_note_survive_a_round_trip(tmp_path: Path) -> None:
    arrays = {
        "flags": np.array([True, False]),
        "bytes": np.arange(5, dtype=np.uint8),
        "whole": np.arange(6, dtype=np.int64).reshape(2, 3),
        "double": np.array(0.1),
        "none": np.zeros((0, 4), np.float32),
    }
    rng = np.random.default_rng(3).bit_generator.state  # integers of 128 bits
    checkpoint.save(tmp_path / "a.safetensors", checkpoint.named("x", arrays), {"rng": rng})
    found = checkpoint.load(tmp_path / "a.safetensors")
    part = found.part("x")
    assert part.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(part[name].numpy(), array, strict=True)
    assert found.get("rng", dict) == rng
    assert found.optional("y") == {}
    with pytest.raises(UserError, match="has no y"):
        found.part("y")
    with pytest.raises(UserError, match=r"a\.safetensors: rng: must be a list, got {"):
        found.get("rng", list)


@pytest.mark.parametrize("steps", ["many", -1, None])
def test_an_invalid_number_of_steps_is_refused(tmp_path: Path, steps: Any) -> None:
    checkpoint.save(tmp_path / "a", {"x": torch.zeros(1)}, {"steps": steps})
    with pytest.raises(UserError, match="steps: must be an integer"):
        assert checkpoint.load(tmp_path / "a").steps


def test_a_policy_acts_the_same_after_a_round_trip(tmp_path: Path) -> None:
    spec = EnvSpec({"state": (5,)}, SPEC.mask, rays=(2, 4), far=10.0)
    policy = ActorCritic(spec, SMALL)
    tensors, note = checkpoint.policy_part(policy)
    checkpoint.save(tmp_path / "a", tensors, note)
    again = checkpoint.load_policy(checkpoint.load(tmp_path / "a"))
    inputs = (
        {"state": torch.randn(4, 5)},
        torch.randn(4, 3),
        torch.randn(4, policy.memory_size),
        torch.zeros(4, dtype=torch.bool),
    )
    first, second = policy.act(*inputs), again.act(*inputs)
    assert torch.equal(first.mean, second.mean) and torch.equal(first.value, second.value)
    assert again.spec == spec and again.settings == SMALL


@pytest.mark.parametrize("keep", [0, 4, 40, 0.5, 0.99])
def test_a_truncated_file_is_a_user_error(tmp_path: Path, keep: float) -> None:
    path = saved(tmp_path / "a")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole)) if isinstance(keep, float) else keep])
    with pytest.raises(UserError, match="truncated or not a checkpoint"):
        checkpoint.load(path)


class Bomb:
    """Object that creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (eval, (f"open({str(self.path)!r}, 'w').close()",))


def test_foreign_files_are_refused_and_run_nothing(tmp_path: Path) -> None:
    trace = tmp_path / "executed"
    (tmp_path / "pickled").write_bytes(pickle.dumps(Bomb(trace)))
    torch.save({"weights": torch.zeros(3), "bomb": Bomb(trace)}, tmp_path / "torch")
    (tmp_path / "text").write_text("hello" * 100)
    for name in ("pickled", "torch", "text"):
        with pytest.raises(UserError, match="truncated or not a checkpoint"):
            checkpoint.load(tmp_path / name)
    assert not trace.exists()
    save_file({"weights": torch.zeros(3)}, tmp_path / "other")
    with pytest.raises(UserError, match="not a checkpoint of tpsrl"):
        checkpoint.load(tmp_path / "other")
    note = json.dumps({"format": 99})
    save_file({"weights": torch.zeros(3)}, tmp_path / "newer", {"tpsrl": note})
    with pytest.raises(UserError, match=r"has format 99; this version, tpsrl .*, reads 1 and 2"):
        checkpoint.load(tmp_path / "newer")
    with pytest.raises(UserError, match="cannot read"):
        checkpoint.load(tmp_path / "absent")


def of_format_1(path: Path, policy: ActorCritic) -> Path:
    """Writes a checkpoint as tpsrl 0.1 did, without a version in the note, and returns its path."""
    tensors, note = checkpoint.policy_part(policy)
    save_file(tensors, path, {"tpsrl": json.dumps({"format": 1, **note})})
    return path


def test_a_policy_is_loaded_from_a_checkpoint_of_format_1(tmp_path: Path) -> None:
    policy = ActorCritic(SPEC, SMALL)
    found = checkpoint.load(of_format_1(tmp_path / "old", policy))
    assert found.version == "0.1"
    again = checkpoint.load_policy(found)
    for name, tensor in policy.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor)


def test_a_checkpoint_of_format_1_is_not_resumed(tmp_path: Path) -> None:
    folder = tmp_path / checkpoint.FOLDER
    folder.mkdir()
    of_format_1(folder / checkpoint.LATEST, ActorCritic(SPEC, SMALL))
    message = "has format 1, written by tpsrl 0.1; its policy can be used, but only format 2 can be"
    with pytest.raises(UserError, match=message) as caught:
        load_latest(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_records_the_version_that_wrote_it(tmp_path: Path) -> None:
    found = checkpoint.load(saved(tmp_path / "a"))
    assert found.version == tpsrl.__version__
    found.check_resumable()


def test_weights_of_another_network_and_non_finite_weights_are_refused(tmp_path: Path) -> None:
    found = checkpoint.load(saved(tmp_path / "a"))
    wider = ActorCritic(SPEC, PolicySettings(encoder="state", lstm_layers=1, lstm_width=16))
    with pytest.raises(UserError, match="has another network"):
        checkpoint.load_weights(wider, found)
    name = next(key for key in found.tensors if key.endswith("weight"))
    found.tensors[name][0] = torch.nan
    with pytest.raises(UserError, match="is not finite"):
        checkpoint.load_policy(found)


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("policy", {"lstm_width": 10**7}),
        ("policy", {"lstm_width": 2_000, "lstm_layers": 64}),
        ("policy", {"encoder": "resnet50", "encoder_width": 10**6}),
        ("policy", {"encoder": "nature_cnn", "lstm_layers": 0, "visual_width": 10**9}),
        ("policy", {"lstm_layers": 0, "state_width": 10**9}),
        ("spec", {"observations": {"state": [10**9]}}),
        ("spec", {"observations": {"state": [5], "depth": [8000, 8000]}}),
        ("spec", {"observations": {"state": [5], "depth": [10**6, 10**6]}}),
    ],
)
def test_a_network_too_large_for_memory_is_refused_before_it_is_built(
    tmp_path: Path, part: str, changes: dict[str, Any]
) -> None:
    found = checkpoint.load(saved(tmp_path / "a"))
    found.note[part] = {**found.note[part], **changes}
    with pytest.raises(UserError, match="has another network"):
        checkpoint.load_policy(found)


@pytest.mark.parametrize(
    "spec",
    [
        {"observations": {}},
        {"observations": {"state": []}},
        {"observations": {"state": [0]}},
        {"observations": {"state": [5], "depth": [32]}},
        {"observations": {"state": [5], "other": [3]}},
        {"mask": []},
        {"rays": [3, 2]},
        {"rays": [0, 6]},
        {"far": 0},
    ],
)
def test_a_policy_with_an_invalid_spec_is_refused(tmp_path: Path, spec: dict[str, Any]) -> None:
    found = checkpoint.load(saved(tmp_path / "a"), field="init")
    found.note["spec"] = {**found.note["spec"], **spec}
    with pytest.raises(UserError, match=r"^init: .*(has no valid 'spec'|: spec: )"):
        checkpoint.load_policy(found)


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.int64, torch.complex64])
def test_weights_of_unsupported_dtypes_are_refused(tmp_path: Path, kind: torch.dtype) -> None:
    found = checkpoint.load(saved(tmp_path / "a"), field="agent")
    for name, tensor in found.tensors.items():
        found.tensors[name] = tensor.to(kind)
    with pytest.raises(UserError, match=f"^agent: .* has the wrong type, {kind}"):
        checkpoint.load_policy(found)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_other_precisions_are_loaded_as_float32(
    tmp_path: Path, kind: torch.dtype
) -> None:
    found = checkpoint.load(saved(tmp_path / "a"))
    for name, tensor in found.tensors.items():
        found.tensors[name] = tensor.to(kind)
    assert {w.dtype for w in checkpoint.load_policy(found).parameters()} == {torch.float32}


@pytest.mark.parametrize(
    "note", ["[]", "{", '{"format": 1e999}', '{"format": "2"}', '{"format": 2, "a": "\\ud800"}']
)
def test_an_invalid_note_is_refused(tmp_path: Path, note: str) -> None:
    save_file({"weights": torch.zeros(3)}, tmp_path / "other", {"tpsrl": note})
    with pytest.raises(UserError, match=r"^agent: .* is not a checkpoint of tpsrl"):
        checkpoint.load(tmp_path / "other", field="agent")


def test_a_failed_write_leaves_the_old_checkpoint_unchanged(tmp_path: Path) -> None:
    path = saved(tmp_path / "a")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="JSON"):
        checkpoint.save(path, {}, {"loss": float("nan")})
    assert path.read_bytes() == before
    with pytest.raises(UserError, match="cannot write"):
        checkpoint.save(path / "b", {}, {})
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_checkpoint_has_the_default_permissions_of_new_files(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    path = saved(tmp_path / "a.safetensors")
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize(
    ("latest", "logged", "training", "cloning"),
    [
        (None, False, True, False),  # a policy copied from elsewhere
        (None, True, False, True),
        ({"ended": False}, True, True, True),
        ({"ended": True}, True, True, False),
        ({}, True, True, False),  # written by an earlier version
    ],
)
def test_a_folder_is_checked_for_a_training_and_for_a_stopped_cloning(
    latest: dict[str, bool] | None, logged: bool, training: bool, cloning: bool, tmp_path: Path
) -> None:
    folder = tmp_path / checkpoint.FOLDER
    saved(folder / checkpoint.BEST)
    if latest is not None:
        checkpoint.save(folder / checkpoint.LATEST, {"a.b": torch.zeros(1)}, latest)
    if logged:
        (tmp_path / "metrics.jsonl").touch()
    assert run.holds_training(tmp_path) == training
    assert was_stopped(tmp_path) == cloning
