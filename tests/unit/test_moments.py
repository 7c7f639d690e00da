import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from test_policy import SMALL, policy, rows

from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.policy.actor_critic import CRITIC, ActorCritic
from tpsrl.rl.policy.moments import RunningMoments
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.rl.run import checkpoint as checkpoints
from tpsrl.rl.run import warm_start
from tpsrl.rl.run.settings import TrainSettings

NORMAL = dataclasses.replace(SMALL, normalise_observations=True)


def fed(policy: ActorCritic, seed: int = 0) -> ActorCritic:
    """Updates the moments of a policy with random data and returns the policy."""
    for number, moments in enumerate(policy.moments.values()):
        generator = torch.Generator().manual_seed(seed + number)
        size = len(moments.mean)
        mean, variance = torch.rand(2, size, generator=generator, dtype=torch.float64)
        moments.add(50.0, 3 * mean, variance)
    return policy


def test_moments_of_parts_combine_to_those_of_the_whole() -> None:
    data = np.random.default_rng(0).normal(1e3, 2.0, (300, 4)) * [1, 10, 0.1, 1]
    moments = RunningMoments(4)
    for part in np.split(data, [1, 40, 41, 200]):
        mean, variance = torch.tensor(part.mean(0)), torch.tensor(part.var(0))
        moments.add(float(len(part)), mean, variance)
    np.testing.assert_allclose(moments.mean, data.mean(0), rtol=1e-12)
    np.testing.assert_allclose(moments.variance, data.var(0), rtol=1e-8)
    assert float(moments.count) == 300


def test_vectors_are_normalised_and_clipped() -> None:
    moments = RunningMoments(3)
    seen = torch.tensor([[0.5, -9.0, 7.0]])
    assert moments(seen).tolist() == [[0.5, -5.0, 5.0]]  # no update yet
    variance = torch.tensor([4.0, 1.0, 1e-9], dtype=torch.float64)
    moments.add(10.0, torch.tensor([1.0, -9.0, 7.0], dtype=torch.float64), variance)
    found = moments(torch.tensor([[2.0, -8.5, 7.01], [99.0, -99.0, 7.0]]))
    torch.testing.assert_close(found, torch.tensor([[0.5, 0.5, 0.1], [5.0, -5.0, 0.0]]))


def test_normalising_inside_a_policy_equals_normalising_its_observations() -> None:
    made, plain = fed(policy(NORMAL)), policy(SMALL)
    data, memory = rows(6), torch.zeros(6, made.memory_size)
    start = torch.zeros(6, dtype=torch.bool)
    white = made.moments["state"](data[0]["state"])
    expected = plain.act({**data[0], "state": white}, data[1], memory, start)
    found = made.act(*data, memory, start)
    assert torch.equal(found.mean, expected.mean) and torch.equal(found.value, expected.value)


def test_checkpoints_contain_the_moments_and_fine_tuning_continues_them(tmp_path: Path) -> None:
    spec = EnvSpec({"state": (5,), CRITIC: (3,)}, (True, True))
    made = fed(ActorCritic(spec, dataclasses.replace(NORMAL, critic=True)))
    checkpoints.save(tmp_path / "p.safetensors", *checkpoints.policy_part(made))
    loaded = checkpoints.load(tmp_path / "p.safetensors")
    again = checkpoints.load_policy(loaded)
    begun = ActorCritic(spec, warm_start.network(PolicySettings(), loaded))
    warm_start.take_over(begun, loaded)
    for other in (again, begun):
        for name, moments in made.moments.items():
            for key, tensor in moments.state_dict().items():
                assert torch.equal(other.moments[name].state_dict()[key], tensor)
    with pytest.raises(UserError, match="normalises its observations; train with the same"):
        warm_start.widened(loaded, {"state": np.arange(5)}, {"state": 6})


def test_a_critic_added_in_fine_tuning_starts_without_moments(tmp_path: Path) -> None:
    spec = EnvSpec({"state": (5,), CRITIC: (3,)}, (True, True))
    made = fed(ActorCritic(EnvSpec({"state": (5,)}, (True, True)), NORMAL))
    checkpoints.save(tmp_path / "p.safetensors", *checkpoints.policy_part(made))
    loaded = checkpoints.load(tmp_path / "p.safetensors")
    settings = warm_start.network(dataclasses.replace(NORMAL, critic=True), loaded)
    begun = ActorCritic(spec, settings)
    warm_start.take_over(begun, loaded)
    assert float(begun.moments["state"].count) == 50.0
    assert float(begun.moments[CRITIC].count) == 0.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalise_observations": True, "magnify_state": True}, r"x\.normalise_observations: co"),
        ({"narrowing": True, "state_layers": 4, "state_width": 7}, "must be at least 8"),
        ({"glimpse": 16}, r"^x\.glimpse: 16 is too small, must be 0 or at least 17$"),
    ],
)
def test_incompatible_settings_of_the_inputs_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        PolicySettings(**changes).check("x.")


def test_selu_preserves_mean_and_variance_through_narrowing_layers() -> None:
    torch.manual_seed(0)
    changes = {"state_width": 256, "state_layers": 3, "narrowing": True, "activation": "selu"}
    settings = dataclasses.replace(SMALL, **changes, lstm_layers=0, previous_action=False)
    embed = ActorCritic(EnvSpec({"state": (64,)}, (True,)), settings).trunk.embed
    assert [layer.out_features for layer in embed[::2]] == [256, 128, 64]
    out = embed(torch.randn(4000, 64)).detach()
    assert abs(float(out.mean())) < 0.1 and 0.8 < float(out.var(0).mean()) < 1.2


def test_presets_of_papers_contain_the_published_numbers() -> None:
    bps, gpu = (config.load_preset("train", name, TrainSettings) for name in ("bps", "gpu_sim"))
    # Shacklett et al. 2021, tables A4 and A5.
    ppo = bps.ppo
    assert (bps.num_envs, bps.num_steps, ppo.epochs, ppo.minibatches) == (1024, 32, 1, 2)
    assert (ppo.clip, ppo.clip_value_loss, ppo.normalise_advantage) == (0.2, False, False)
    assert (ppo.gamma, ppo.gae_lambda, ppo.learning_rate, ppo.base_batch) == (0.99, 0.95, 5e-4, 256)
    assert (ppo.max_grad_norm, ppo.weight_decay, ppo.trust_min) == (1.0, 0.01, 0.01)
    # Liang et al. 2018, table 4.
    assert (gpu.num_envs, gpu.num_steps, gpu.ppo.epochs, gpu.ppo.minibatches) == (1024, 32, 20, 1)
    assert gpu.ppo.desired_kl == 0.02 and gpu.policy.state_widths == (256, 128, 64)
    for preset in (bps, gpu):
        preset.ppo.check()
        preset.policy.check()
