from typing import Any

import numpy as np
import pytest
import torch
from toy_vec_env import SPEC, ToyVecEnv, ToyVecEnvFactory

from tpsrl.errors import RunError, UserError
from tpsrl.rl.collection import collectors
from tpsrl.rl.collection.collectors import AnyCollector
from tpsrl.rl.collection.noise import Noise
from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.collection.settings import CollectorSettings
from tpsrl.rl.envs.delay import DelayedVecEnvFactory
from tpsrl.rl.envs.vec_env import StepBatch
from tpsrl.rl.policy import gaussian
from tpsrl.rl.policy.actor_critic import ActorCritic, PolicyStep
from tpsrl.rl.policy.settings import PolicySettings

N, T = 5, 8
LOCK_STEP = ("sync", "batch")
SMALL = PolicySettings(encoder="state", lstm_layers=1, lstm_width=8, state_width=8)


@pytest.fixture
def policy() -> ActorCritic:
    torch.manual_seed(0)
    return ActorCritic(SPEC, SMALL)


def rollout(policy: ActorCritic) -> Rollout:
    return Rollout(SPEC, N, N * T, policy.memory_size)


def columns(rows: Rollout) -> dict[str, np.ndarray]:
    """Returns copies of all columns, in the order of the rollout's rows."""
    names = ("previous_action", "action", "log_prob", "memory", "value")
    numpy = ("env", "version", "is_first", "terminated", "truncated", "reward", "bootstrap")
    parts = {name: getattr(rows, name) for name in names} | rows.observation
    parts = {name: values.numpy() for name, values in parts.items()}
    parts |= {name: getattr(rows, name) for name in numpy}
    return {name: values[rows.rows].copy() for name, values in parts.items()}


def make(name: str, num_envs: int = N, **options: Any) -> AnyCollector:
    return collectors.make(CollectorSettings(name, num_envs, **options), ToyVecEnvFactory())


def collect(collector: AnyCollector, policy: ActorCritic, rows: Rollout, count: int) -> list[dict]:
    found = []
    for version in range(count):
        collector.collect(policy, [rows], version)
        found.append(columns(rows))
    return found


def assert_same(ones: list[dict], others: list[dict]) -> None:
    assert len(ones) == len(others)
    for one, other in zip(ones, others, strict=True):
        for name in one | other:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def test_worker_processes_and_the_batch_collector_equal_the_serial_collector(
    policy: ActorCritic,
) -> None:
    serial = make("sync", processes=0, seed=3)
    spread = make("sync", processes=2, seed=3)
    try:
        ones = collect(serial, policy, rollout(policy), 3)
        assert_same(ones, collect(spread, policy, rollout(policy), 3))
        assert_same(ones, collect(make("batch", seed=3), policy, rollout(policy), 3))
    finally:
        spread.close()
    assert ones[0]["truncated"].any() and ones[0]["terminated"].any()


@pytest.mark.parametrize("name", LOCK_STEP)
def test_every_step_is_collected_once_and_in_order(name: str, policy: ActorCritic) -> None:
    collector = make(name)
    rows = rollout(policy)
    step, episode = np.zeros((2, N), int)  # expected step and episode of each environment
    for version in range(4):
        collector.collect(policy, [rows], version)
        seen = columns(rows)
        assert len(seen["env"]) == N * T
        assert (seen["version"] == version).all()
        for row in range(N * T):
            env = seen["env"][row]
            assert seen["state"][row][[0, 1, 3]].tolist() == [step[env], episode[env], env]
            assert seen["is_first"][row] == (step[env] == 0)
            wanted = seen["state"][row][2] + seen["action"][row, 0] * (step[env] + 1)
            assert seen["reward"][row] == pytest.approx(wanted, abs=1e-6)
            over = step[env] + 1 == 3 + (env + episode[env]) % 4
            even = (env + episode[env]) % 2 == 0
            assert seen["truncated"][row] == (over and even)
            assert seen["terminated"][row] == (over and not even)
            step[env], episode[env] = (
                (0, episode[env] + 1) if over else (step[env] + 1, episode[env])
            )


def test_a_truncated_episode_is_bootstrapped_from_its_last_observation(policy: ActorCritic) -> None:
    sync = make("sync")
    rows = rollout(policy)
    sync.collect(policy, [rows])
    seen = columns(rows)
    cut = np.flatnonzero(seen["truncated"])
    assert len(cut) == 3
    for row in cut:
        one = slice(row, row + 1)
        before = {name: torch.from_numpy(seen[name][one]) for name in SPEC.observations}
        first = torch.from_numpy(seen["is_first"][one])
        previous, memory = (
            torch.from_numpy(seen[name][one]) for name in ("previous_action", "memory")
        )
        with torch.no_grad():
            step = policy.act(before, previous, memory, first)
            state = seen["state"][one] + np.array([1, 0, 0, 0], np.float32)
            last = {"state": torch.from_numpy(state), "depth": before["depth"]}
            action = torch.from_numpy(seen["action"][one])
            assert step.memory is not None
            value = policy.act(last, action, step.memory, torch.tensor([False])).value
        assert seen["bootstrap"][row] == pytest.approx(float(value), abs=1e-6)


@pytest.mark.parametrize("name", LOCK_STEP)
def test_episodes_are_reported_with_the_rollout_in_which_they_end(
    name: str, policy: ActorCritic
) -> None:
    collector = make(name)
    rows = rollout(policy)
    for _ in range(3):
        collection = collector.collect(policy, [rows])
        over = int((rows.terminated | rows.truncated)[rows.rows].sum())
        assert len(collection.episodes) == over > 0
        assert collection.steps == N * T
        assert all(seconds >= -1e-3 for seconds in collection.seconds.values())
        assert len(collection.env) == len(collection.took_s) == len(collection.ready_at) == N * T


@pytest.mark.parametrize(
    ("first", "second", "correlation"),
    [
        (("sync", 0), ("sync", 0), 0.0),
        (("sync", 0), ("sync", 2), 0.0),
        (("sync", 2), ("sync", 0), 0.0),
        (("sync", 0), ("sync", 0), 0.9),
        (("batch", 0), ("batch", 0), 0.9),
        (("batch", 0), ("sync", 2), 0.0),
        (("sync", 2), ("batch", 0), 0.0),
    ],
)
def test_a_restored_collector_continues_bit_for_bit(
    policy: ActorCritic, first: tuple[str, int], second: tuple[str, int], correlation: float
) -> None:
    begun = make(first[0], processes=first[1], seed=3, noise_correlation=correlation)
    resumed = make(second[0], processes=second[1], seed=99, noise_correlation=correlation)
    try:
        rows = rollout(policy)
        collect(begun, policy, rows, 2)
        snapshot, (tensors, note) = begun.snapshot(), rows.state_dict()
        expected = collect(begun, policy, rows, 2)
        resumed.restore(*snapshot)
        other = rollout(policy)
        other.load_state_dict(tensors, note)
        assert_same(collect(resumed, policy, other, 2), expected)
    finally:
        begun.close()
        resumed.close()


def test_correlated_noise_is_standard_normal_and_independent_per_environment() -> None:
    noise, other = (Noise(N, 2, seed=7, correlation=0.9) for _ in range(2))
    every = np.arange(N)
    drawn = np.stack([noise.draw(every) for _ in range(20_000)])  # (steps, N, 2)
    assert np.abs(drawn.mean(0)).max() < 0.1 and np.abs(drawn.std(0) - 1.0).max() < 0.1
    for lag, expected in ((1, 0.9), (10, 0.9**10)):
        found = (drawn[lag:] * drawn[:-lag]).mean(0) / drawn.var(0)
        assert np.abs(found - expected).max() < 0.08, lag
    assert abs(np.corrcoef(drawn.reshape(len(drawn), -1).T) - np.eye(2 * N)).max() < 0.15
    # The numbers of an environment do not depend on the batches in which they are drawn.
    for step in range(100):
        alone = [other.draw(np.array([env])) for env in every[::-1]]
        np.testing.assert_array_equal(np.concatenate(alone[::-1]), drawn[step])


def test_snapshots_of_something_else_are_refused(policy: ActorCritic) -> None:
    sync = make("sync")
    arrays, note = sync.snapshot()
    fewer = {**note["environments"], "environments": note["environments"]["environments"][:4]}
    with pytest.raises(UserError, match="has 4 environments, must have 5"):
        sync.restore(arrays, {**note, "environments": fewer})
    without = {name: values for name, values in arrays.items() if name != "noise/block"}
    with pytest.raises(UserError, match="the noise does not fit"):
        sync.restore(without, note)
    with pytest.raises(UserError, match="snapshot: not a snapshot of environments"):
        sync.restore({}, {})
    sync.restore(arrays, note)
    correlated = make("sync", noise_correlation=0.5)
    with pytest.raises(UserError, match="the noise does not fit"):
        correlated.restore(arrays, note)


def test_invalid_settings_of_collectors_are_refused() -> None:
    with pytest.raises(UserError, match="collector: unknown value 'sinc'; did you mean 'sync'"):
        make("sinc")
    with pytest.raises(UserError, match="num_envs: must be at least 1, got 0"):
        make("sync", 0)
    with pytest.raises(UserError, match="min_batch: 6 is out of range, must be between 1 and 5"):
        make("ver", min_batch=6)
    with pytest.raises(UserError, match="inference_workers: must be at least 1, got 0"):
        make("ver", inference_workers=0)
    with pytest.raises(
        UserError, match=r"inference_workers: 2 requires .* processes is 0; nearest: 1"
    ):
        make("ver", inference_workers=2)
    with pytest.raises(UserError, match=r"processes: is 2, but collector 'batch' .* nearest: 0"):
        make("batch", processes=2)


class Counted(ActorCritic):
    """Policy that records the number of environments in each call of `act`."""

    def __init__(self) -> None:
        super().__init__(SPEC, SMALL)
        self.batches: list[int] = []

    def act(self, observation: Any, *args: Any) -> PolicyStep:
        self.batches.append(len(observation["state"]))
        return super().act(observation, *args)


def test_each_batch_is_one_policy_call_and_one_environment_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []
    step = ToyVecEnv.step

    def noted(envs: ToyVecEnv, env_ids: list[int], actions: np.ndarray) -> StepBatch:
        calls.append(len(env_ids))
        return step(envs, env_ids, actions)

    monkeypatch.setattr(ToyVecEnv, "step", noted)
    counted = Counted()
    make("batch").collect(counted, [rollout(counted)])
    # The last call of the policy computes the values after the end of the rollout.
    assert calls == [N] * T and counted.batches[:-1] == [N] * T


def test_the_batch_collector_continues_from_steps_in_flight(policy: ActorCritic) -> None:
    ver, batch = make("ver", seed=3), make("batch")
    rows, others = rollout(policy), rollout(policy)
    collect(ver, policy, rows, 3)
    tensors, note = rows.state_dict()
    assert len(rows.in_flight)
    batch.restore(*ver.snapshot())
    others.load_state_dict(tensors, note)
    for seen in collect(batch, policy, others, 3):
        assert len(seen["env"]) == N * T


@pytest.mark.parametrize("name", LOCK_STEP)
def test_an_action_that_is_not_finite_stops_the_run(name: str, policy: ActorCritic) -> None:
    collector = make(name)
    with torch.no_grad():
        next(policy.action_head.parameters()).fill_(float("nan"))
    with pytest.raises(RunError, match="policy: an action is not finite"):
        collector.collect(policy, [rollout(policy)])


def test_the_log_probability_is_that_of_the_action_taken(policy: ActorCritic) -> None:
    sync = make("sync")
    rows = rollout(policy)
    sync.collect(policy, [rows])
    shown = {name: values[rows.rows] for name, values in rows.observation.items()}
    with torch.no_grad():
        step = policy.act(
            shown,
            rows.previous_action[rows.rows],
            rows.memory[rows.rows],
            torch.from_numpy(rows.is_first[rows.rows]),
        )
        wanted = gaussian.log_prob(step.mean, step.std, rows.action[rows.rows], policy.mask)
    torch.testing.assert_close(rows.log_prob[rows.rows], wanted)
    assert (rows.action[rows.rows][:, 2] == 0.0).all()  # masked


# Delayed observations.


def test_a_delayed_environment_returns_the_observation_of_the_previous_step() -> None:
    prompt, late = ToyVecEnvFactory()(range(N)), DelayedVecEnvFactory(ToyVecEnvFactory())(range(N))
    seen = prompt.reset(range(N))["state"]
    np.testing.assert_array_equal(late.reset(range(N))["state"], seen)
    cut = 0
    for turn in range(30):
        actions = np.full((N, 3), turn / 10.0)
        now, shown = prompt.step(range(N), actions), late.step(range(N), actions)
        np.testing.assert_array_equal(shown.reward, now.reward)
        fresh = (now.terminated | now.truncated)[:, None]
        expected = np.where(fresh, now.observation["state"], seen)
        np.testing.assert_array_equal(shown.observation["state"], expected)
        np.testing.assert_array_equal(late.observe(range(N))["state"], expected)
        if shown.final is not None:
            np.testing.assert_array_equal(shown.final["state"], seen[now.truncated])
            cut += 1
        seen = now.observation["state"]
    assert cut > 5


def test_delayed_environments_continue_from_a_snapshot() -> None:
    late, other = (DelayedVecEnvFactory(ToyVecEnvFactory())(range(N)) for _ in range(2))
    late.reset(range(N))
    actions = np.ones((N, 3))
    for _ in range(4):
        late.step(range(N), actions)
    for env in range(N):
        other.restore(env, *late.snapshot(env))
    for _ in range(9):
        one, two = late.step(range(N), actions), other.step(range(N), actions)
        for name, values in one.observation.items():
            np.testing.assert_array_equal(two.observation[name], values)
    arrays, note = ToyVecEnvFactory()(range(1)).snapshot(0)
    with pytest.raises(UserError, match=r"snapshot: shown/.* is missing"):
        other.restore(0, arrays, note)
