import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tpsrl.errors import RunError, UserError
from tpsrl.runtime import pool, processes


@dataclasses.dataclass(frozen=True)
class Squares:
    """Squares numbers; at `bad` it fails in the way of `how`."""

    bad: int = -1
    how: str = ""

    def __call__(self) -> Callable[[int], int]:
        return self.square

    def square(self, number: int) -> int:
        if number == self.bad:
            if self.how == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "user error":
                raise UserError("object 3 overlaps the sofa")
            if self.how == "run error":
                raise RunError("none of 9 drafts was good")
            raise ZeroDivisionError("one over nothing")
        return number * number


@pytest.mark.parametrize("processes", [1, 2])
def test_every_task_is_executed_once_and_keeps_its_index(processes: int) -> None:
    results = list(pool.run(Squares(), [3, 1, 4, 1, 5], processes))
    assert sorted(results) == [(0, 9), (1, 1), (2, 16), (3, 1), (4, 25)]


def test_no_tasks_start_no_process() -> None:
    assert list(pool.run(Squares(), [], 2)) == []


def test_a_dead_worker_is_reported_with_its_task() -> None:
    with pytest.raises(RunError, match=r"died while working on task 2: signal SIGKILL;"):
        list(pool.run(Squares(bad=7, how="die"), [5, 6, 7, 8], 2))


def test_a_run_error_of_a_worker_is_raised_in_the_caller() -> None:
    with pytest.raises(RunError, match=r"^none of 9 drafts was good$"):
        list(pool.run(Squares(bad=6, how="run error"), [5, 6], 2))


def test_a_user_error_of_a_worker_is_raised_in_the_caller() -> None:
    with pytest.raises(UserError, match=r"^object 3 overlaps the sofa$"):
        list(pool.run(Squares(bad=6, how="user error"), [5, 6], 2))


def test_other_errors_of_a_worker_are_raised_with_their_traceback() -> None:
    with pytest.raises(RunError, match=r"(?s)task 1 failed.*ZeroDivisionError: one over nothing"):
        list(pool.run(Squares(bad=6), [5, 6], 2))


def test_workers_end_when_the_caller_closes_the_results() -> None:
    results = pool.run(Pids(), [0, 1, 2, 3], 2)
    _, pid = next(results)
    results.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_stopped_worker_process_is_ended_as_well() -> None:
    results = pool.run(Pids(), [0, 1, 2, 3], 2)
    _, pid = next(results)
    os.kill(pid, signal.SIGSTOP)
    results.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_the_end_of_the_parent_ends_the_workers(how: str, tmp_path: Path) -> None:
    code = (
        "import signal, sys\n"
        # A shell starts background processes with interrupts ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from test_pool import Sleepers\n"
        "from tpsrl.runtime import pool\n"
        "if __name__ == '__main__':\n"
        "    list(pool.run(Sleepers(sys.argv[2]), [0, 1], 2))\n"
    )
    script = tmp_path / "main.py"
    script.write_text(code)
    pids = tmp_path / "pids"
    pids.mkdir()
    command = [sys.executable, str(script), str(Path(__file__).parent), str(pids)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as parent:
        while len(list(pids.iterdir())) < 2:
            assert parent.poll() is None
            time.sleep(0.02)
        parent.send_signal(signal.Signals[how])
        # The workers keep the pipe open as long as they live.
        _, errors = parent.communicate(timeout=30)
    assert ("KeyboardInterrupt" in errors) == (how == "SIGINT")
    assert parent.returncode != 0
    for file in pids.iterdir():
        assert gone(int(file.name))


def gone(pid: int) -> bool:
    """Returns whether a process ends within ten seconds."""
    for _ in range(500):
        state = Path(f"/proc/{pid}/stat")
        # A process whose parent died first stays as a zombie if no process waits for it.
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("count", [2, 24])  # as many tasks as workers, and more
def test_a_script_without_main_guard_gets_an_explanation(count: int, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_pool import Squares\n"
        "from tpsrl.runtime import pool\n"
        f"list(pool.run(Squares(), range({count}), 2))\n"
    )
    script = tmp_path / "main.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1  # the traceback of the script itself
    last = done.stderr.splitlines()[-1]
    assert last.startswith("tpsrl.errors.RunError: a worker process died while working on ")
    assert last.endswith('call tpsrl under `if __name__ == "__main__":`')


@dataclasses.dataclass(frozen=True)
class Sleepers:
    """Worker that leaves its process number in a folder and sleeps."""

    folder: str

    def __call__(self) -> Callable[[int], None]:
        return self.sleep

    def sleep(self, task: int) -> None:
        (Path(self.folder) / str(os.getpid())).touch()
        time.sleep(60)


class Pids:
    """Worker that returns its process number."""

    def __call__(self) -> Callable[[int], int]:
        return lambda task: os.getpid()


@pytest.fixture
def usual_signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Signal handling as in a terminal, restored afterwards; background processes ignore Ctrl-C."""
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize(
    ("number", "expected"),
    [(signal.SIGTERM, processes.Terminated), (signal.SIGINT, KeyboardInterrupt)],
)
def test_another_error_raised_while_handling_a_signal_counts_as_the_signal(
    number: signal.Signals, expected: type[BaseException]
) -> None:
    with pytest.raises(expected), processes.ending_in_order():
        try:
            os.kill(os.getpid(), number)
            time.sleep(1)
        except BaseException:
            raise SystemError("returned a result with an exception set") from None
    with pytest.raises(ZeroDivisionError), processes.ending_in_order():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


class Destructor:
    """Object that sends a signal in its destructor, where exceptions are ignored."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def __del__(self) -> None:
        os.kill(os.getpid(), self._number)
        _wait_a_little()


def _wait_a_little() -> None:
    time.sleep(0.01)


def in_a_destructor(number: signal.Signals) -> None:
    Destructor(number)


def where_all_is_caught(number: signal.Signals) -> None:
    try:
        os.kill(os.getpid(), number)
        _wait_a_little()
    except BaseException:
        pass


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize("lose", [in_a_destructor, where_all_is_caught])
@pytest.mark.parametrize(
    ("number", "expected"),
    [(signal.SIGTERM, processes.Terminated), (signal.SIGINT, KeyboardInterrupt)],
)
def test_a_signal_whose_exception_is_lost_is_raised_again(
    number: signal.Signals,
    expected: type[BaseException],
    lose: Callable[[signal.Signals], None],
) -> None:
    went_on = 0
    with pytest.raises(expected), processes.ending_in_order():
        lose(number)
        went_on += 1
        time.sleep(30.0)
        went_on += 1
    assert went_on == 1


@pytest.mark.usefixtures("usual_signals")
def test_a_signal_that_ended_a_block_is_not_raised_again_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "_AGAIN_S", 0.0)
    with pytest.raises(processes.Terminated), processes.ending_in_order():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(30.0)
        finally:  # slow, and not interrupted by a second signal
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.2)
    time.sleep(0.1)
