"""Asynchronous collectors: properties of their experience for fast and slow environments."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from toy_vec_env import SPEC, ToyVecEnvFactory

from tpsrl.errors import RunError
from tpsrl.rl.collection import collectors
from tpsrl.rl.collection.collector import Collection
from tpsrl.rl.collection.collectors import AnyCollector
from tpsrl.rl.collection.inference import Batch, Choice, InferenceThreads, choose
from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.collection.settings import CollectorSettings
from tpsrl.rl.envs.step_buffers import READY, STEPPING, StepBuffers
from tpsrl.rl.envs.supervision import FaultTolerance
from tpsrl.rl.envs.worker_pool import WorkerEnvPool
from tpsrl.rl.policy.actor_critic import ActorCritic, PolicyStep
from tpsrl.rl.policy.settings import PolicySettings

N, T = 5, 8
SMALL = PolicySettings(encoder="state", lstm_layers=1, lstm_width=8, state_width=8)
ASYNC = ("ver", "nover", "overlap")
QUICK = FaultTolerance(hang_s=1.0, max_failures=3, warn_s=0.2)

Make = Callable[..., AnyCollector]
Columns = dict[str, np.ndarray]


@pytest.fixture(autouse=True)
def _failures_are_noticed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("supervision", "worker_pool"):
        monkeypatch.setattr(f"tpsrl.rl.envs.{module}.CHECK_EVERY_S", 0.02)


@pytest.fixture
def policy() -> ActorCritic:
    torch.manual_seed(0)
    return ActorCritic(SPEC, SMALL)


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[AnyCollector] = []

    def one(
        name: str,
        factory: ToyVecEnvFactory | None = None,
        tolerance: FaultTolerance | None = None,
        say: Callable[[str], None] = lambda text: None,
        **options: Any,
    ) -> AnyCollector:
        settings = CollectorSettings(name, N, **options)
        made.append(collectors.make(settings, factory or ToyVecEnvFactory(), tolerance, say))
        return made[-1]

    yield one
    for collector in made:
        collector.close()


def rollouts(collector: AnyCollector, policy: ActorCritic) -> list[Rollout]:
    return [Rollout(SPEC, N, N * T, policy.memory_size) for _ in range(collector.rollouts)]


OF_POLICY = ("action", "log_prob", "memory", "previous_action", "value")
OF_ENVIRONMENT = ("state", "depth", "reward", "terminated", "truncated", "is_first")


def columns(rows: Rollout) -> Columns:
    parts = {name: getattr(rows, name).numpy() for name in OF_POLICY}
    parts |= {name: getattr(rows, name) for name in (*OF_ENVIRONMENT[2:], "env", "version")}
    parts |= {name: values.numpy() for name, values in rows.observation.items()}
    return {name: values[rows.rows].copy() for name, values in parts.items()}


def run(
    collector: AnyCollector, policy: ActorCritic, count: int, made: list[Rollout] | None = None
) -> list[Columns]:
    made = made or rollouts(collector, policy)
    found = []
    for version in range(count):
        collection = collector.collect(policy, made, version)
        found.append(columns(collection.rollout))
    return found


def streams(found: list[Columns]) -> list[Columns]:
    """Returns the rows of each environment in order."""
    whole = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
    return [{name: v[whole["env"] == env] for name, v in whole.items()} for env in range(N)]


def assert_whole(stream: Columns, env: int) -> None:
    """Asserts that every step of the toy environment occurs once and in order from the first."""
    step = episode = 0
    for row in range(len(stream["env"])):
        state = stream["state"][row]
        assert state[[0, 1, 3]].tolist() == [step, episode, env]
        assert stream["is_first"][row] == (step == 0)
        wanted = state[2] + stream["action"][row, 0] * (step + 1)
        assert stream["reward"][row] == pytest.approx(wanted, abs=1e-5)
        over = step + 1 == 3 + (env + episode) % 4
        even = (env + episode) % 2 == 0
        assert stream["truncated"][row] == (over and even)
        assert stream["terminated"][row] == (over and not even)
        step, episode = (0, episode + 1) if over else (step + 1, episode)


# -- every step, once, in order ----------------------------------------------------------------


@pytest.mark.parametrize(("processes", "workers"), [(0, 1), (2, 1), (5, 3)])
@pytest.mark.parametrize("name", ASYNC)
def test_rollouts_have_every_step_once_and_in_order(
    name: str, processes: int, workers: int, make: Make, policy: ActorCritic
) -> None:
    collector = make(name, processes=processes, seed=3, inference_workers=workers)
    found = run(collector, policy, 25)
    assert [len(part["env"]) for part in found] == [N * T] * 25
    for env, stream in enumerate(streams(found)):
        assert_whole(stream, env)


@pytest.mark.parametrize("processes", [0, 5])
def test_steps_in_flight_belong_to_the_next_rollout_with_the_version_that_chose_them(
    processes: int, make: Make, policy: ActorCritic
) -> None:
    carried = 0
    for version, part in enumerate(run(make("ver", processes=processes), policy, 20)):
        behind = version - part["version"]
        # A process that the machine suspends may be in flight for longer than a rollout.
        assert set(behind.tolist()) <= {0, 1} if processes == 0 else behind.min() >= 0
        # At most one step of each environment was in flight: the first row of that environment.
        for env in range(N):
            assert not behind[part["env"] == env][1:].any()
        carried += int(behind.sum())
    assert carried > 20


def test_overlap_learns_from_experience_of_the_previous_policy(
    make: Make, policy: ActorCritic
) -> None:
    overlap = make("overlap", processes=2)
    for version, part in enumerate(run(overlap, policy, 6)):
        behind = version - part["version"]
        assert set(behind.tolist()) <= ({0} if version == 0 else {1, 2})


def test_without_variable_experience_all_environments_give_equally_many_steps(
    make: Make, policy: ActorCritic
) -> None:
    for part in run(make("nover", processes=2), policy, 10):
        assert np.bincount(part["env"]).tolist() == [T] * N


def test_with_variable_experience_fast_environments_give_more_steps(
    make: Make, policy: ActorCritic
) -> None:
    counts = [np.bincount(part["env"], minlength=N) for part in run(make("ver"), policy, 10)]
    assert min(count.min() for count in counts) < T < max(count.max() for count in counts)
    assert all(count.sum() == N * T for count in counts)


# -- independence of speed ------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", ["sync", *ASYNC])
def test_processes_give_the_same_transitions_as_the_serial_twin(
    name: str, workers: int, make: Make, policy: ActorCritic
) -> None:
    ones = streams(run(make(name, seed=3), policy, 6))
    parallel = make(name, processes=3, seed=3, inference_workers=workers)
    others = streams(run(parallel, policy, 6))
    for one, other in zip(ones, others, strict=True):
        common = min(len(one["env"]), len(other["env"]))
        assert common > 10
        for column in (*OF_ENVIRONMENT, *OF_POLICY):
            np.testing.assert_allclose(one[column][:common], other[column][:common], atol=1e-5)


def test_the_serial_twin_is_reproducible_and_its_seed_matters(
    make: Make, policy: ActorCritic
) -> None:
    first, again, other = (run(make("ver", seed=seed), policy, 4) for seed in (1, 1, 2))
    for one, two in zip(first, again, strict=True):
        for name in one:
            np.testing.assert_array_equal(one[name], two[name])
    assert any((a["env"] != b["env"]).any() for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("name", ["ver", "nover"])
def test_a_restored_serial_twin_continues_bit_for_bit(
    name: str, make: Make, policy: ActorCritic
) -> None:
    begun, resumed = make(name, seed=3), make(name, seed=99)
    rows = rollouts(begun, policy)
    run(begun, policy, 3, rows)
    arrays, note = begun.snapshot()
    tensors, about = rows[0].state_dict()
    expected = run(begun, policy, 3, rows)
    resumed.restore(arrays, note)
    others = rollouts(resumed, policy)
    others[0].load_state_dict(tensors, about)
    for one, two in zip(run(resumed, policy, 3, others), expected, strict=True):
        for column in one:
            np.testing.assert_array_equal(one[column], two[column], err_msg=column)


@pytest.mark.parametrize(
    ("name", "after"), [("ver", "ver"), ("ver", "sync"), ("sync", "overlap"), ("ver", "batch")]
)
@pytest.mark.parametrize("processes", [(2, 3), (0, 2), (2, 0)])
def test_a_snapshot_neither_loses_nor_doubles_steps(
    name: str, after: str, processes: tuple[int, int], make: Make, policy: ActorCritic
) -> None:
    begun = make(name, processes=processes[0])
    rows = rollouts(begun, policy)
    found = run(begun, policy, 3, rows)
    arrays, note = begun.snapshot()
    tensors, about = rows[0].state_dict()
    resumed = make(after, processes=0 if after == "batch" else processes[1])
    resumed.restore(arrays, note)
    others = rollouts(resumed, policy)
    others[0].load_state_dict(tensors, about)
    found += run(resumed, policy, 4, others)
    for env, stream in enumerate(streams(found)):
        assert_whole(stream, env)


def test_workers_never_see_a_restored_step_as_sent(
    make: Make, policy: ActorCritic, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[np.ndarray] = []
    load = StepBuffers.load

    def noted(buffers: StepBuffers, arrays: Columns) -> None:
        loaded.append(arrays["state"].copy())
        load(buffers, arrays)

    twin = make("ver")
    run(twin, policy, 3)
    arrays, note = twin.snapshot()
    assert (arrays["environments/buffers/state"] == STEPPING).any()
    monkeypatch.setattr(StepBuffers, "load", noted)
    make("ver", processes=2).restore(arrays, note)
    assert len(loaded) == 1 and not (loaded[0] == STEPPING).any()
    assert (loaded[0] == READY).any()


def test_overlap_pauses_without_collecting_ahead(make: Make, policy: ActorCritic) -> None:
    overlap = make("overlap", processes=2)
    rows = rollouts(overlap, policy)
    overlap.collect(policy, rows, 0)
    assert overlap.running
    found = overlap.collect(policy, rows, 1, ahead=False)
    assert not overlap.running and len(found.rollout.rows) == N * T
    overlap.snapshot()


# -- batches -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "low", "high"), [("ver", 1, 2), ("ver", 3, 0), ("ver", 4, 4), ("sync", 1, 2)]
)
def test_batches_are_within_their_bounds(
    name: str, low: int, high: int, make: Make, policy: ActorCritic
) -> None:
    ver = make(name, min_batch=low, max_batch=high, processes=5)
    sizes: list[int] = []
    made = rollouts(ver, policy)
    add = made[0].add

    def counted(envs: np.ndarray, *args: Any, **options: Any) -> None:
        sizes.append(len(envs))
        add(envs, *args, **options)

    made[0].add = counted  # type: ignore[method-assign, assignment]
    for env, stream in enumerate(streams(run(ver, policy, 10, made))):
        assert_whole(stream, env)
    assert max(sizes) <= (high or N)
    if name == "sync":
        assert sizes.count(1) == sizes.count(2) / 2  # 2, 2 and 1 make 5
    if low == high:
        # Smaller batches occur only at the end of a rollout.
        assert np.mean(np.array(sizes) == high) > 0.5


# -- several inference workers -----------------------------------------------------------------


class Watched(ActorCritic):
    """Policy that records each inference and calls `before` with the environments of the batch."""

    def __init__(self, before: Callable[[list[int]], None] = lambda envs: None) -> None:
        super().__init__(SPEC, SMALL)
        self.before = before
        self.batches: list[tuple[str, int]] = []  # thread, size

    def act(self, observation: Any, *args: Any) -> PolicyStep:
        envs = observation["state"][:, 3].int().tolist()
        self.batches.append((threading.current_thread().name, len(envs)))
        self.before(envs)
        return super().act(observation, *args)


def in_thread() -> bool:
    return threading.current_thread().name.startswith("tpsrl inference")


@pytest.mark.parametrize("name", ["sync", "nover", "ver"])
def test_several_inference_workers_choose_actions_at_once(name: str, make: Make) -> None:
    together = threading.Barrier(3)
    left = [3]

    def meet(envs: list[int]) -> None:
        if left[0]:
            left[0] -= 1
            together.wait(20.0)

    watched = Watched(meet)
    run(make(name, processes=5, inference_workers=3), watched, 3)
    assert len({thread for thread, _ in watched.batches}) == 3
    watched.batches.clear()
    run(make(name, processes=5), watched, 3)
    assert {thread for thread, _ in watched.batches} == {threading.current_thread().name}


@pytest.mark.parametrize(("low", "high"), [(1, 1), (2, 2), (4, 0)])
def test_several_inference_workers_respect_the_bounds_of_batches(
    low: int, high: int, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def noted(policy: ActorCritic, batch: Batch) -> Choice:
        sizes.append(len(batch.envs))
        return choose(policy, batch)

    monkeypatch.setattr("tpsrl.rl.collection.inference.choose", noted)  # calls by threads
    monkeypatch.setattr("tpsrl.rl.collection.collector.choose", noted)
    collector = make("ver", processes=5, min_batch=low, max_batch=high, inference_workers=2)
    for env, stream in enumerate(streams(run(collector, Watched(), 10))):
        assert_whole(stream, env)
    assert max(sizes) <= (high or N)
    # Smaller batches occur only at the end of a rollout.
    assert np.mean(np.array(sizes) >= low) > 0.5


def test_an_error_in_an_inference_worker_is_raised(make: Make) -> None:
    def fail(envs: list[int]) -> None:
        if in_thread():
            raise ValueError("out of memory")

    with pytest.raises(ValueError, match="out of memory"):
        run(make("ver", processes=5, inference_workers=4), Watched(fail), 10)


@pytest.mark.parametrize("name", ["sync", *ASYNC])
def test_environments_can_be_lost_during_inference(
    name: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, dropped = threading.Event(), threading.Event()
    withdrawn: list[int] = []
    drop = InferenceThreads.drop

    def noted(threads: InferenceThreads, envs: np.ndarray) -> None:
        drop(threads, envs)
        withdrawn.extend(env for b, _ in threads._tasks for env in b.envs[~b.valid].tolist())
        dropped.set()

    def die(envs: list[int]) -> None:
        # Inference for environment 0 is delayed until its worker is known to be dead.
        if in_thread() and 0 in envs and not killed.is_set():
            killed.set()
            process = collector.pool.group.workers[0].process  # type: ignore[attr-defined]
            os.kill(process.pid, signal.SIGKILL)
            assert dropped.wait(20.0)

    monkeypatch.setattr(InferenceThreads, "drop", noted)
    collector = make(name, processes=5, tolerance=QUICK, inference_workers=3)
    watched, size = Watched(die), 200 * N  # more than the other environments give meanwhile
    made = [Rollout(SPEC, N, size, watched.memory_size) for _ in range(collector.rollouts)]
    collections, found = lossy(collector, watched, 1, more=2, made=made)
    assert_sound(found, size)
    assert withdrawn == [0]
    assert [lost.envs.tolist() for c in collections for lost in c.lost] == [[0]]


# -- failures ----------------------------------------------------------------------------------


def lossy(
    collector: AnyCollector,
    policy: ActorCritic,
    lost: int,
    more: int = 100,
    made: list[Rollout] | None = None,
) -> tuple[list[Collection], list[Columns]]:
    """Returns what is collected until `lost` losses and in `more` further rollouts."""
    made = made or rollouts(collector, policy)
    collections, found = [], []
    while more:
        collections.append(collector.collect(policy, made, len(found)))
        found.append(columns(collections[-1].rollout))
        assert len(found) < 5000
        lost -= len(collections[-1].lost)
        more -= lost <= 0
    return collections, found


def assert_sound(found: list[Columns], size: int = N * T) -> None:
    """Asserts full rollouts whose sequences continue or begin with an episode."""
    for part in found:
        assert len(part["env"]) == size
        assert np.isfinite(part["reward"]).all()
    for stream in streams(found):
        step = None
        for row in range(len(stream["env"])):
            now, first = stream["state"][row][0], stream["is_first"][row]
            assert first == (now == 0)
            assert now in (0, step)
            over = stream["terminated"][row] or stream["truncated"][row]
            step = None if over else now + 1


CAUSES = {
    "kill": "died: signal SIGKILL",
    "hang": "hung: ",
    "nan": "reward is not finite",
    "raise": "ValueError: environment 3 is on fire",
}


@pytest.mark.parametrize(
    ("name", "trouble"),
    [
        *(("ver", cause) for cause in CAUSES),
        ("sync", "kill"),
        ("nover", "nan"),
        ("overlap", "hang"),
    ],
)
def test_a_worker_that_fails_is_replaced(
    name: str, trouble: str, make: Make, policy: ActorCritic
) -> None:
    messages: list[str] = []
    factory = ToyVecEnvFactory(trouble, where=3, when=20)
    collector = make(name, factory, processes=5, tolerance=QUICK, say=messages.append)
    collections, found = lossy(collector, policy, 1)
    assert_sound(found)
    lost = [one for collection in collections for one in collection.lost]
    assert [one.envs.tolist() for one in lost] == [[3]]
    assert CAUSES[trouble] in lost[0].cause
    assert any(CAUSES[trouble] in line and "it is replaced" in line for line in messages)
    # The replaced environment gives steps again.
    assert 3 in np.concatenate([part["env"] for part in found[-50:]])


def test_a_start_that_repeatedly_kills_workers_is_quarantined(
    make: Make, policy: ActorCritic
) -> None:
    messages: list[str] = []
    factory = ToyVecEnvFactory("kill", episode=2, failures=10)
    tolerance = FaultTolerance(max_failures=50, quarantine_after=2)
    ver = make("ver", factory, processes=5, tolerance=tolerance, say=messages.append)
    collections, found = lossy(ver, policy, 2)
    assert_sound(found)
    assert "start 2 is quarantined" in messages
    # Environments that have already begun with the start may still fail.
    assert 2 <= sum(len(c.lost) for c in collections) <= N
    assert not any(c.lost for c in collections[-5:])
    # Environments that skipped the start continued with the next one.
    assert any((stream["state"][:, 1] == 3).any() for stream in streams(found))


def test_too_many_failures_end_the_training_with_their_cause(
    make: Make, policy: ActorCritic
) -> None:
    factory = ToyVecEnvFactory("raise", where=3, when=2, failures=100)
    tolerance = FaultTolerance(max_failures=2, quarantine_after=99)
    ver = make("ver", factory, processes=5, tolerance=tolerance)
    message = r"3 workers failed within \d+ s, the last: worker 3 .* environment 3 is on fire"
    with pytest.raises(RunError, match=message):
        lossy(ver, policy, 99)


def test_the_watchdog_reports_the_awaited_worker(make: Make, policy: ActorCritic) -> None:
    messages: list[str] = []
    tolerance = FaultTolerance(hang_s=2.5, warn_s=0.5)
    factory = ToyVecEnvFactory("hang", where=3, when=4)
    sync = make("sync", factory, processes=5, tolerance=tolerance, say=messages.append)
    lossy(sync, policy, 1, more=1)
    waiting = "waiting for worker 3 (environments 3 to 3), "
    assert [line for line in messages if line.startswith(waiting) and " at a step (start " in line]


def test_a_worker_lost_between_rollouts_is_replaced_before_a_snapshot(
    make: Make, policy: ActorCritic
) -> None:
    ver = make("ver", processes=5, tolerance=QUICK)
    rows = rollouts(ver, policy)
    found = run(ver, policy, 2, rows)
    pool: WorkerEnvPool = ver.pool  # type: ignore[attr-defined]
    os.kill(pool.group.workers[2].process.pid or 0, signal.SIGKILL)
    arrays, note = ver.snapshot()
    assert note["environments"]["lost"][0][0] == [2]
    tensors, about = rows[0].state_dict()
    resumed = make("ver", processes=2)
    resumed.restore(arrays, note)
    others = rollouts(resumed, policy)
    others[0].load_state_dict(tensors, about)
    assert_sound(found + run(resumed, policy, 4, others))
    assert_sound(found + run(ver, policy, 4, rows))


def test_a_hanging_worker_does_not_prevent_closing_overlap(make: Make, policy: ActorCritic) -> None:
    overlap = make("overlap", ToyVecEnvFactory("hang", where=1, when=25), processes=5)
    made = rollouts(overlap, policy)
    collected = threading.Event()

    def collect() -> None:
        overlap.collect(policy, made, 0)
        collected.set()

    threading.Thread(target=collect, daemon=True).start()
    assert collected.wait(20.0)
    overlap.close()
