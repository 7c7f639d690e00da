"""The collector `device`, with toy environments whose tensors are on the CPU."""

import numpy as np
import pytest
import torch
from test_collector import SMALL, N, T, assert_same, collect, columns, make, rollout
from toy_device_env import ToyDeviceFactory
from toy_vec_env import SPEC

from tpsrl.errors import RunError, UserError
from tpsrl.rl.collection import collectors
from tpsrl.rl.collection.device import DeviceCollector
from tpsrl.rl.collection.device_rollout import DeviceRollout
from tpsrl.rl.collection.noise import Noise
from tpsrl.rl.collection.settings import CollectorSettings
from tpsrl.rl.policy.actor_critic import ActorCritic


@pytest.fixture
def policy() -> ActorCritic:
    torch.manual_seed(0)
    return ActorCritic(SPEC, SMALL)


def on_device(seed: int = 3, **options: float) -> DeviceCollector:
    settings = CollectorSettings("device", N, seed=seed, **options)  # type: ignore[arg-type]
    made = collectors.make(settings, ToyDeviceFactory())
    assert isinstance(made, DeviceCollector)
    return made


def device_rollout(policy: ActorCritic) -> DeviceRollout:
    return DeviceRollout(SPEC, N, N * T, policy.memory_size)


def test_rollouts_equal_those_of_sync_with_the_same_noise(
    policy: ActorCritic, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = Noise(N, SPEC.action_size, seed=3)
    monkeypatch.setattr(
        DeviceCollector, "_noise", lambda self: torch.from_numpy(noise.draw(np.arange(N)))
    )
    wanted = collect(make("sync", seed=3), policy, rollout(policy), 3)
    found = collect(on_device(), policy, device_rollout(policy), 3)
    for ours, theirs in zip(found, wanted, strict=True):
        # Values of truncated episodes are computed in other batches.
        np.testing.assert_allclose(ours.pop("bootstrap"), theirs.pop("bootstrap"), atol=1e-6)
    assert_same(wanted, found)
    assert found[0]["truncated"].any() and found[0]["terminated"].any()


def test_noise_is_reproducible_and_correlated(policy: ActorCritic) -> None:
    ones, others = (collect(on_device(), policy, device_rollout(policy), 2) for _ in range(2))
    assert_same(ones, others)
    made = on_device(noise_correlation=0.9)
    drawn = torch.stack([made._noise() for _ in range(4000)])
    assert drawn.std().item() == pytest.approx(1.0, abs=0.05)
    assert (drawn[1:] * drawn[:-1]).mean().item() == pytest.approx(0.9, abs=0.06)


def test_a_resumed_collector_draws_the_next_noise_in_new_episodes(policy: ActorCritic) -> None:
    first, rows = on_device(), device_rollout(policy)
    collect(first, policy, rows, 2)
    said: list[str] = []
    settings = CollectorSettings("device", N, seed=0)
    second = collectors.make(settings, ToyDeviceFactory(), say=said.append)
    second.restore(*first.snapshot())
    again = device_rollout(policy)
    collect(on_device(), policy, again, 1)  # a rollout in use can be loaded, too
    again.load_state_dict(*rows.state_dict())
    second.collect(policy, [again], 2)
    assert again.is_first[:N].all() and (again.generation[again.rows] == 3).all()
    assert said == ["collector=device does not save environments: all episodes restart"]
    for _ in range(T):
        first._noise()
    assert isinstance(second, DeviceCollector)
    assert torch.equal(second._noise(), first._noise())


def test_each_ended_episode_is_reported_once(policy: ActorCritic) -> None:
    made, rows = on_device(), device_rollout(policy)
    for version in range(2):
        found = made.collect(policy, [rows], version)
        written = columns(rows)
        assert len(found.episodes) == (written["terminated"] | written["truncated"]).sum() > 0


def test_an_infinite_action_ends_the_run(policy: ActorCritic) -> None:
    with torch.no_grad():
        policy.action_head.mean.bias.fill_(torch.nan)
    with pytest.raises(RunError, match="policy: an action is not finite"):
        on_device().collect(policy, [device_rollout(policy)])


def test_unsuitable_environments_and_checkpoints_are_refused() -> None:
    with pytest.raises(
        UserError, match=r"preset\.collector: 'device' needs environments with tensors"
    ):
        make("device")
    with pytest.raises(UserError, match="processes: is 2, but collector 'device' steps all"):
        make("device", processes=2)
    settings = CollectorSettings("device", N, device="cuda")
    with pytest.raises(UserError, match="device: is cuda, but the environments are on cpu"):
        collectors.make(settings, ToyDeviceFactory())
    with pytest.raises(UserError, match=r"preset\.collector: this collector cannot continue"):
        on_device().restore({"environments/0": np.zeros(1)}, {})
