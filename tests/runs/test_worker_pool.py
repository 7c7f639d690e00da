import concurrent.futures
import contextlib
import dataclasses
import json
import mmap
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_vec_env import ToyVecEnvFactory

from tpsrl.errors import RunError, UserError
from tpsrl.rl.envs.pool import EnvPool, LostEnvs, PoolSnapshot, step_all
from tpsrl.rl.envs.serial_pool import SerialEnvPool
from tpsrl.rl.envs.supervision import FaultTolerance
from tpsrl.rl.envs.vec_env import StepBatch
from tpsrl.rl.envs.worker_pool import WorkerEnvPool

N = 5


@pytest.fixture(autouse=True)
def _failures_are_noticed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("supervision", "worker_pool"):
        monkeypatch.setattr(f"tpsrl.rl.envs.{module}.CHECK_EVERY_S", 0.02)


@pytest.fixture
def pool() -> Iterator[WorkerEnvPool]:
    started = WorkerEnvPool(ToyVecEnvFactory(), N, 2)
    yield started
    started.close()


def actions(turn: int) -> np.ndarray:
    return np.random.default_rng(turn).normal(size=(N, 3)).astype(np.float32)


def plain(done: StepBatch) -> dict[str, object]:
    """Returns a step as lists, copied for later comparison."""
    parts = dataclasses.asdict(done)
    parts["observation"] = {name: values.tolist() for name, values in done.observation.items()}
    if done.final is not None:
        parts["final"] = {name: values.tolist() for name, values in done.final.items()}
    arrays = ("reward", "terminated", "truncated")
    return parts | {name: getattr(done, name).tolist() for name in arrays}


def run(pool: EnvPool, turns: range) -> list[dict[str, object]]:
    steps = []
    for turn in turns:
        steps.append(plain(step_all(pool, actions(turn))))
    return steps


def pids(pool: WorkerEnvPool) -> list[int]:
    return [worker.process.pid or 0 for worker in pool.group.workers]


def gone(pid: int, seconds: float = 10.0) -> bool:
    """Returns whether a process ends within `seconds`; a zombie has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


# -- steps -------------------------------------------------------------------------------------


def test_workers_give_the_same_steps_as_one_process(pool: WorkerEnvPool) -> None:
    serial = SerialEnvPool(ToyVecEnvFactory(), N)
    serial.reset()
    pool.reset()
    for name, values in serial.observation.items():
        np.testing.assert_array_equal(pool.observation[name], values)
    ours, theirs = run(pool, range(40)), run(serial, range(40))
    assert ours == theirs
    assert any(step["final"] for step in ours)
    assert sum(len(step["episodes"]) for step in ours) > 20  # type: ignore[arg-type]


def test_any_subset_of_environments_can_be_stepped(pool: WorkerEnvPool) -> None:
    serial = ToyVecEnvFactory()(range(N))
    serial.reset(range(N))
    pool.reset()
    rng = np.random.default_rng(0)
    for turn in range(60):
        envs = np.sort(rng.permutation(N)[: rng.integers(1, N + 1)])
        acts = actions(turn)[envs]
        expected = plain(serial.step(envs.tolist(), acts))
        pool.send(envs, acts)
        while len(pool.poll(len(envs))) < len(envs):
            pass
        assert plain(pool.recv(envs)) == expected


def test_seconds_are_counted_by_cause(pool: WorkerEnvPool) -> None:
    pool.reset()
    run(pool, range(3))
    seconds = pool.seconds
    assert set(seconds) == {"simulation", "rendering", "resets"}
    assert seconds["simulation"] > 0.0
    assert seconds["rendering"] == seconds["resets"] == 0.0


# -- large messages ----------------------------------------------------------------------------


def within(seconds: float, pool: WorkerEnvPool, work: Callable[[], Any]) -> Any:
    """Returns the result of work with a pool; ends the pool's processes after `seconds`."""
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        found = thread.submit(work)
        try:
            return found.result(seconds)
        except TimeoutError:
            for worker in pool.group.workers:
                worker.process.kill()
            pytest.fail("two processes wait for each other")


LARGE = ToyVecEnvFactory(ballast=1_000_000)  # several times the capacity of a socket


def test_records_larger_than_a_pipe_are_transferred() -> None:
    pool, serial = WorkerEnvPool(LARGE, N, 2), SerialEnvPool(LARGE, N)
    try:
        pool.reset(), serial.reset()
        ours = within(30.0, pool, lambda: run(pool, range(12)))
        assert ours == run(serial, range(12))
        assert sum(len(step["episodes"]) for step in ours) > 10
    finally:
        pool.close()


def test_a_large_snapshot_is_restored_while_large_records_wait() -> None:
    pool = WorkerEnvPool(LARGE, N, 2)

    def work() -> None:
        pool.reset()
        run(pool, range(2))
        frozen = pool.snapshot()
        expected = run(pool, range(2, 9))
        pool.restore(*frozen)
        pool.send(np.arange(N), actions(2))  # the third step ends episodes of two environments
        pool.restore(*frozen)
        assert run(pool, range(2, 9)) == expected

    try:
        within(30.0, pool, work)
    finally:
        pool.close()


def test_records_lost_with_their_worker_cost_only_its_environments() -> None:
    tolerance, messages = FaultTolerance(), []
    pool = WorkerEnvPool(LARGE, N, 2, tolerance, messages.append)
    try:
        pool.reset()
        run(pool, range(2))
        pool.send(np.arange(N), actions(2))  # the last step of episodes in environments 0 and 4
        while len(pool.poll(N)) < N:
            pass
        os.kill(pids(pool)[0], signal.SIGKILL)
        done = pool.recv(np.arange(N))
        assert done.terminated.tolist() == [False, False, False, False, False]
        assert done.truncated.tolist() == [True, False, False, False, True]
        assert [episode.env for episode in done.episodes] == [4]
        pool.poll()
        [lost] = pool.lost()
        assert lost.envs.tolist() == [0, 1, 2] and "died: signal SIGKILL" in lost.cause
        while len(pool.idle()) < N:
            pool.poll()
        assert len(messages) == 1 and len(run(pool, range(3))) == 3
    finally:
        pool.close()


# -- snapshots ---------------------------------------------------------------------------------


def test_snapshots_are_restored_in_pools_with_other_processes(pool: WorkerEnvPool) -> None:
    pool.reset()
    run(pool, range(7))
    frozen = pool.snapshot()
    expected = run(pool, range(7, 30))
    others = WorkerEnvPool(ToyVecEnvFactory(), N, 3)
    try:
        others.restore(*frozen)
        assert run(others, range(7, 30)) == expected
    finally:
        others.close()
    serial = SerialEnvPool(ToyVecEnvFactory(), N)
    serial.restore(*frozen)
    assert run(serial, range(7, 30)) == expected


def test_an_incompatible_snapshot_is_refused_and_the_workers_survive(
    pool: WorkerEnvPool,
) -> None:
    pool.reset()
    arrays, note = pool.snapshot()
    buffers = {name: values for name, values in arrays.items() if name.startswith("buffers/")}
    with pytest.raises(UserError, match="toy: not a snapshot of mine"):
        pool.restore(buffers, note)
    with pytest.raises(UserError, match="has 1 environments, must have 5"):
        pool.restore(arrays, {**note, "environments": note["environments"][:1]})
    pool.restore(arrays, note)
    assert len(run(pool, range(3))) == 3


# -- failures ----------------------------------------------------------------------------------


def test_an_exception_in_a_worker_is_raised_with_its_cause() -> None:
    pool = WorkerEnvPool(ToyVecEnvFactory("raise", where=3), N, 2)
    pool.reset()
    with pytest.raises(RunError) as caught:
        run(pool, range(20))
    message = "worker 1 (environments 3 to 4) failed: ValueError: environment 3 is on fire"
    assert str(caught.value) == message
    assert "in _trouble" in caught.value.__notes__[0]
    numbers = pids(pool)
    pool.close()
    assert all(gone(pid) for pid in numbers)


def test_a_killed_worker_is_reported_and_no_processes_remain() -> None:
    before = len(os.listdir("/proc/self/fd"))
    pool = WorkerEnvPool(ToyVecEnvFactory("kill", where=0), N, 2)
    pool.reset()
    with pytest.raises(RunError, match=r"worker 0 \(environments 0 to 2\) died: signal SIGKILL"):
        run(pool, range(20))
    numbers = pids(pool)
    pool.close()
    pool.close()
    assert all(gone(pid) for pid in numbers)
    assert len(os.listdir("/proc/self/fd")) <= before + 8  # those of the server that starts workers


def test_a_worker_that_dies_between_steps_is_reported_by_the_next_command(
    pool: WorkerEnvPool,
) -> None:
    pool.reset()
    os.kill(pids(pool)[1], signal.SIGKILL)
    with pytest.raises(RunError, match=r"worker 1 \(environments 3 to 4\) died: signal SIGKILL"):
        pool.snapshot()


def test_errors_of_the_factory_are_raised_by_the_pool() -> None:
    with pytest.raises(UserError, match="toy: no such thing"):
        WorkerEnvPool(ToyVecEnvFactory("refuse"), N, 2)
    with pytest.raises(UserError, match="processes: 6 is out of range, must be between 1 and the"):
        WorkerEnvPool(ToyVecEnvFactory(), N, 6)


def test_a_worker_that_dies_during_its_launch_is_launched_again(
    tmp_path: Path, pool: WorkerEnvPool
) -> None:
    pool.reset()
    undisturbed = run(pool, range(12))
    messages: list[str] = []
    factory = ToyVecEnvFactory("kill", where=3, at="launch", fuse=str(tmp_path / "fuse"))
    disturbed = WorkerEnvPool(factory, N, 2, FaultTolerance(max_failures=1), messages.append)
    try:
        disturbed.reset()
        assert run(disturbed, range(12)) == undisturbed
        assert disturbed.lost() == []
    finally:
        disturbed.close()
    assert [text.partition(";")[0] for text in messages] == [
        "worker 1 (environments 3 to 4) died: signal SIGKILL"
    ]
    assert messages[0].endswith("while it started; it is replaced")


def test_workers_that_die_too_often_during_launch_end_the_run() -> None:
    messages: list[str] = []
    factory = ToyVecEnvFactory("kill", where=3, at="launch")
    with pytest.raises(RunError, match=r"worker 1 \(environments 3 to 4\) died: signal SIGKILL"):
        WorkerEnvPool(factory, N, 2, FaultTolerance(max_failures=2), messages.append)
    assert len(messages) == 2


def test_signals_to_the_process_group_are_handled_by_the_main_process() -> None:
    """Signals of this kind come from `timeout`, scancel and service managers."""
    code = """
        import os, signal, sys, numpy as np
        from toy_vec_env import ToyVecEnvFactory
        from tpsrl.rl.envs.pool import step_all
        from tpsrl.rl.envs.worker_pool import WorkerEnvPool

        if __name__ == "__main__":
            received = []
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
                signal.signal(number, lambda *_: received.append(1))
            pool = WorkerEnvPool(ToyVecEnvFactory(), 4, 2)
            pool.reset()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
                os.killpg(os.getpgrp(), number)
                for turn in range(3):
                    step_all(pool, np.zeros((4, 3), np.float32))
            pool.close()
            print(len(received))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert (done.stdout, done.returncode) == ("3\n", 0), done.stderr


def test_workers_ignore_signals(pool: WorkerEnvPool) -> None:
    pool.reset()
    for pid in pids(pool):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            os.kill(pid, number)
    assert len(run(pool, range(3))) == 3


def test_a_hanging_worker_is_ended_by_close() -> None:
    pool = WorkerEnvPool(ToyVecEnvFactory("hang", when=1), N, 2)
    pool.reset()
    pool.send(np.arange(N), actions(0))
    numbers = pids(pool)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tpsrl.rl.envs.worker_group._PATIENCE_S", 0.2)
        pool.close()
    assert all(gone(pid) for pid in numbers)


# -- commands that hang ------------------------------------------------------------------------


COMMANDS = ("reset", "snapshot", "restore")
HASTY = FaultTolerance(hang_s=0.5)
STARTS = {"reset": "before the first start", "snapshot": "start 0", "restore": "start 0"}


def settle(pool: WorkerEnvPool) -> list[LostEnvs]:
    """Waits until every environment is idle and returns the lost ones."""
    lost = pool.lost()
    while len(pool.idle()) < N:
        pool.poll()
        lost += pool.lost()
    return lost


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("trouble", ["hang", "kill", "raise"])
def test_a_worker_that_fails_at_a_command_is_replaced(command: str, trouble: str) -> None:
    messages: list[str] = []
    factory = ToyVecEnvFactory(trouble, where=3, at=command)
    pool = WorkerEnvPool(factory, N, 2, HASTY, messages.append)

    def work() -> None:
        pool.reset()
        lost = settle(pool)
        run(pool, range(2))
        frozen = pool.snapshot()
        lost += settle(pool)
        expected = run(pool, range(2, 9))
        pool.restore(*frozen)
        lost += settle(pool)
        after = run(pool, range(2, 9))
        # A snapshot contains losses that were not reported before it.
        times = 2 if command == "snapshot" else 1
        assert [one.envs.tolist() for one in lost] == [[3, 4]] * times
        for one, other in zip(after, expected, strict=True):
            assert one["observation"]["state"][:3] == other["observation"]["state"][:3]

    try:
        within(30.0, pool, work)
    finally:
        pool.close()
    assert len(messages) == 1 and messages[0].endswith("it is replaced")
    if trouble == "hang":
        worker = "worker 1 (environments 3 to 4)"
        assert messages[0].startswith(f"{worker} hung: 0 s at {command} ({STARTS[command]}); ")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_hanging_command_ends_a_run_without_fault_tolerance(command: str) -> None:
    factory = ToyVecEnvFactory("hang", where=3, at=command)
    pool = WorkerEnvPool(factory, N, 2, dataclasses.replace(HASTY, max_failures=0))
    numbers = pids(pool)

    def work() -> None:
        pool.reset()
        run(pool, range(2))
        pool.restore(*pool.snapshot())

    try:
        with pytest.raises(RunError) as caught:
            within(30.0, pool, work)
    finally:
        pool.close()
    where = f"{command} ({STARTS[command]})"
    assert str(caught.value) == f"worker 1 (environments 3 to 4) hung: 0 s at {where}"
    assert all(gone(pid) for pid in numbers)


def test_a_hanging_launch_ends_with_an_error() -> None:
    factory = ToyVecEnvFactory("hang", where=3, at="launch")
    with pytest.raises(RunError, match=r"hung: 1 s at its launch \(before the first start\)"):
        WorkerEnvPool(factory, N, 2, FaultTolerance(launch_s=1.0))


def test_a_worker_that_hangs_before_its_first_step_is_replaced() -> None:
    messages: list[str] = []
    factory = ToyVecEnvFactory("hang", where=3, at="reset", failures=2)
    pool = WorkerEnvPool(factory, N, 2, HASTY, messages.append)

    def work() -> None:
        pool.reset()
        assert [lost.envs.tolist() for lost in settle(pool)] == [[3, 4]] * 2
        assert len(run(pool, range(3))) == 3

    try:
        within(30.0, pool, work)
    finally:
        pool.close()
    assert "s at its first reset (before the first start)" in messages[1]


def test_a_large_command_to_a_stopped_worker_times_out() -> None:
    pool = WorkerEnvPool(LARGE, N, 2, HASTY)

    def work() -> None:
        pool.reset()
        frozen = pool.snapshot()
        os.kill(pids(pool)[1], signal.SIGSTOP)
        pool.restore(*frozen)
        assert [lost.envs.tolist() for lost in settle(pool)] == [[3, 4]]

    try:
        within(30.0, pool, work)
    finally:
        pool.close()


# -- failures across snapshots --------------------------------------------------------------------


LIFE = {"quarantine": [2], "failures": [[1, 1]], "restarts": [0, 0, 0, 3, 3]}


def handed_on(pool: EnvPool) -> PoolSnapshot:
    arrays, note = pool.snapshot()
    return arrays, json.loads(json.dumps(note))  # as in a checkpoint


def test_the_quarantine_of_a_start_is_kept_by_every_restored_pool() -> None:
    factory = ToyVecEnvFactory()
    begun = SerialEnvPool(factory, N)
    begun.reset()
    arrays, note = begun.snapshot()
    frozen = arrays, {**note, **LIFE}
    for processes in (0, 2, 0, 5):
        pool = WorkerEnvPool(factory, N, processes) if processes else SerialEnvPool(factory, N)
        try:
            pool.restore(*frozen)
            episodes = [e for step in range(20) for e in step_all(pool, actions(step)).episodes]
            assert {e.start_index for e in episodes} >= {0, 1, 3}
            assert not [e for e in episodes if e.start_index == 2]
            pool.restore(*frozen)
            frozen = handed_on(pool)
        finally:
            pool.close()
        assert {name: frozen[1][name] for name in LIFE} == LIFE


def test_failures_before_a_snapshot_count_after_it() -> None:
    messages: list[str] = []
    begun = SerialEnvPool(ToyVecEnvFactory(), N)
    begun.reset()
    arrays, note = begun.snapshot()
    deadly = ToyVecEnvFactory("kill", episode=1)
    pool = WorkerEnvPool(deadly, N, 2, FaultTolerance(), messages.append)
    try:
        pool.restore(arrays, {**note, **LIFE})
        pool.send(np.array([3]), actions(0)[3:4])
        lost: list[LostEnvs] = []
        while not lost:
            envs = pool.poll(1)
            pool.recv(envs)
            lost = pool.lost()
            if len(envs):
                pool.send(envs, actions(0)[envs])
        assert lost[0].envs.tolist() == [3, 4]
        settle(pool)
        assert handed_on(pool)[1]["quarantine"] == [2, 1]
        assert "start 1 is quarantined" in messages
        assert pool.group.workers[1].restarts == 4  # with random numbers unlike those of restart 3
    finally:
        pool.close()


# -- processes end -----------------------------------------------------------------------------


MAIN = """
import os, signal, sys
import numpy as np
from toy_vec_env import ToyVecEnvFactory
from tpsrl.rl.envs.worker_pool import WorkerEnvPool
if __name__ == "__main__":
    pool = WorkerEnvPool(ToyVecEnvFactory({trouble}), 4, 2)
    pool.reset()
    print(*[worker.process.pid for worker in pool.group.workers], flush=True)
    {end}
"""


def abandoned(paths: set[Path]) -> list[Path]:
    """Returns the files of shared memory that no process maps; other tests use theirs meanwhile."""
    mapped = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):  # the process has ended
            mapped |= {int(line.split()[4]) for line in maps.read_text().splitlines()}
    found = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            found += [path] if path.stat().st_ino not in mapped else []
    return found


def test_abandoned_shared_memory_is_detected() -> None:
    names = {Path("/dev/shm") / f"tpsrl-{os.getpid()}-{name}" for name in ("used", "left")}
    used, left = sorted(names, reverse=True)
    used.write_bytes(b"x")
    left.write_bytes(b"x")
    try:
        with used.open("r+b") as file, mmap.mmap(file.fileno(), 0):
            assert abandoned(names) == [left]
    finally:
        used.unlink()
        left.unlink()


@pytest.mark.parametrize(
    ("trouble", "end", "code"),
    [
        ("", "os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        (
            "'hang', when=1",
            "pool.send(np.arange(4), np.zeros((4, 3))); os.kill(os.getpid(), 9)",
            -signal.SIGKILL,
        ),
        ("", "sys.exit(3)", 3),
    ],
)
def test_workers_end_with_the_main_process(
    tmp_path: Path, trouble: str, end: str, code: int
) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(MAIN.format(trouble=trouble, end=end)))
    path = {"PYTHONPATH": os.pathsep.join(map(str, Path(__file__).parents[1:3]))}
    names = set(Path("/dev/shm").iterdir())
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, **path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    numbers = [int(word) for word in done.stdout.split()]
    assert len(numbers) == 2
    assert all(gone(pid) for pid in numbers)
    left = set(Path("/dev/shm").iterdir()) - names
    end = time.monotonic() + 10.0
    while abandoned(left) and time.monotonic() < end:  # trackers of other tests remove theirs
        time.sleep(0.1)
    assert abandoned(left) == []


def test_a_script_without_main_guard_gets_an_explanation(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "from toy_vec_env import ToyVecEnvFactory\n"
        "from tpsrl.rl.envs.worker_pool import WorkerEnvPool\n"
        "WorkerEnvPool(ToyVecEnvFactory(), 4, 2)\n"
    )
    path = {"PYTHONPATH": os.pathsep.join(map(str, Path(__file__).parents[1:3]))}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        env={**os.environ, **path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1  # the traceback of the script itself
    assert 'call tpsrl under `if __name__ == "__main__":`' in done.stderr.splitlines()[-1]
