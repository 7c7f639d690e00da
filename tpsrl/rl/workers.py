"""Environment worker processes: several homes each, observations and actions in shared memory.

A step of a worker costs, whatever the number of its homes: one signal each way (`shared.Signals`:
at most a system call to send and one to sleep), and one copy of each observation, from the homes
into shared memory. Episodes that ended, commands and their answers travel over a pipe.
"""

import atexit
import contextlib
import ctypes
import dataclasses
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.util  # its own hook at exit has to be registered before ours
import os
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

from tpsrl.errors import RunError, UserError
from tpsrl.rl.envs import EnvSpec, Episode, Homes, HomesFactory, Observation, StepBatch
from tpsrl.rl.serial import CAUSES, Frozen, by_cause
from tpsrl.rl.shared import Layout, SharedArrays, Signals
from tpsrl.rl.stopwatch import Stopwatch

_SLICE_S = 1.0  # a wait is interrupted so often to see whether the others live
_PATIENCE_S = 5.0  # for workers to end by themselves
_IDLE, _ASKED, _ANSWERED = range(3)  # of an environment
_READY = 0  # the channel on which workers signal; worker i is signalled on channel i + 1
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
# The main process decides what these mean, and may need its workers for a last checkpoint.
_LEFT_TO_MAIN = ("SIGINT", "SIGTERM", "SIGUSR1")


@dataclasses.dataclass(slots=True)
class _Worker:
    """A process as the main process sees it."""

    number: int
    envs: np.ndarray
    process: BaseProcess
    pipe: Connection
    letters: int = 0  # messages about episodes that were read

    @property
    def name(self) -> str:
        """For messages."""
        return f"worker {self.number} (environments {self.envs[0]} to {self.envs[-1]})"


class Workers:
    """`tpsrl.rl.serial.Environments` in worker processes, each with a block of them.

    Any environments can be stepped without the others by `ask` and `answered`; a worker steps
    together what it was asked for since it last looked. Every worker ends when this process does.

    Raises:
        UserError: one that the factory raised.
        RunError: a worker failed or died, with the cause.
    """

    def __init__(self, factory: HomesFactory, num_envs: int, processes: int) -> None:
        if not 1 <= processes <= num_envs:
            raise UserError(
                f"processes: {processes} is out of range, must be between 1 and the "
                f"{num_envs} environments"
            )
        self.num_envs = num_envs
        self.observation: Observation = {}
        self._workers: list[_Worker] = []
        blocks = np.array_split(np.arange(num_envs), processes)
        self._owner = np.repeat(np.arange(processes), [len(envs) for envs in blocks])
        self._episodes: list[Episode] = []
        self._shared: SharedArrays | None = None
        _open.add(self)
        try:
            for number, envs in enumerate(blocks):
                self._workers.append(_start(factory, number, envs))
            specs: list[EnvSpec] = [self._read(worker) for worker in self._workers]
            self.spec = specs[0]
            self._share()
        except BaseException:
            self.close()
            raise

    def _share(self) -> None:
        """Makes the shared memory and hands it to the workers."""
        shared = SharedArrays(_layout(self.spec, self.num_envs, len(self._workers)))
        signals = Signals(shared["signals"])
        signals.begin()
        self._shared, self._signals = shared, signals
        for worker in self._workers:
            with self._watched(worker):
                shared.send(worker.pipe, worker.process.pid or 0)
        self.observation = {name: shared[f"observation.{name}"] for name in self.spec.observations}

    # -- steps ---------------------------------------------------------------------------------

    def send(self, actions: np.ndarray) -> None:
        """See `tpsrl.rl.serial.Environments.send`."""
        self.ask(np.arange(self.num_envs), actions)

    def receive(self) -> StepBatch:
        """See `tpsrl.rl.serial.Environments.receive`."""
        missing = self.num_envs
        while missing:
            missing -= len(self.answered())
        return self.collect(np.arange(self.num_envs))

    def ask(self, envs: np.ndarray, actions: np.ndarray) -> None:
        """Starts a step of environments (m,) under actions (m, A)."""
        self._array("actions")[envs] = actions
        self._array("state")[envs] = _ASKED
        for number in np.unique(self._owner[envs]):
            self._signals.send(int(number) + 1)

    def answered(self) -> np.ndarray:
        """Waits until environments have made their step, and says which (m,).

        Their results have to be fetched by `collect` before they are asked again.

        Raises:
            RunError: a worker failed or died.
        """
        state = self._array("state")
        while True:
            if self._signals.receive(_READY, _SLICE_S):
                self._check_failed()
                envs = np.flatnonzero(state == _ANSWERED)
                # One signal may have told already what another one was sent for.
                if len(envs):
                    state[envs] = _IDLE
                    return envs
            else:
                self._check_alive()

    def collect(self, envs: np.ndarray) -> StepBatch:
        """What came of the step of environments (m,) that have answered."""
        shown = self.observation
        if len(envs) < self.num_envs:
            shown = {name: values[envs] for name, values in shown.items()}
        reward = self._array("reward")[envs]
        terminated, truncated = self._array("terminated")[envs], self._array("truncated")[envs]
        final = None
        if truncated.any():
            cut = envs[truncated]
            final = {name: self._array(f"final.{name}")[cut] for name in shown}
        over = envs[truncated | terminated]
        episodes = self._take_episodes(over) if len(over) else []
        return StepBatch(shown, reward, terminated, truncated, final, episodes)

    def _take_episodes(self, over: np.ndarray) -> list[Episode]:
        """The records of these environments' episodes, in the order of `over`."""
        letters = self._array("letters")
        for number in np.unique(self._owner[over]):
            worker = self._workers[number]
            while worker.letters < letters[number]:
                self._episodes += self._read(worker)
                worker.letters += 1
        wanted = {int(env): place for place, env in enumerate(over)}
        found = [episode for episode in self._episodes if episode.env in wanted]
        self._episodes = [episode for episode in self._episodes if episode.env not in wanted]
        return sorted(found, key=lambda episode: wanted[episode.env])

    # -- everything else -----------------------------------------------------------------------

    @property
    def seconds(self) -> dict[str, float]:
        """See `tpsrl.rl.serial.Environments.seconds`."""
        return dict(zip(CAUSES, self._array("seconds").mean(axis=0).tolist(), strict=True))

    def reset(self) -> None:
        """See `tpsrl.rl.serial.Environments.reset`."""
        self._command("reset", [() for _ in self._workers])

    def snapshot(self) -> list[Frozen]:
        """See `tpsrl.rl.serial.Environments.snapshot`."""
        answers = self._command("snapshot", [() for _ in self._workers])
        return [frozen for answer in answers for frozen in answer]

    def restore(self, frozen: list[Frozen]) -> None:
        """See `tpsrl.rl.serial.Environments.restore`."""
        if len(frozen) != self.num_envs:
            raise UserError(f"snapshot: of {len(frozen)} environments, here are {self.num_envs}")
        self._command("restore", [([frozen[e] for e in w.envs],) for w in self._workers])

    def close(self) -> None:
        """See `tpsrl.rl.serial.Environments.close`."""
        _open.discard(self)
        shared, self._shared = self._shared, None
        if shared is not None:
            shared["closing"][:] = True
            for worker in self._workers:
                self._signals.send(worker.number + 1)
        end = time.monotonic() + (_PATIENCE_S if shared is not None else 0.0)
        for worker in self._workers:
            worker.process.join(max(end - time.monotonic(), 0.0))
            if worker.process.exitcode is None:
                worker.process.kill()
                worker.process.join()
            worker.pipe.close()
            worker.process.close()
        self._workers = []
        if shared is not None:
            self.observation = {}
            shared.close()

    def _array(self, name: str) -> np.ndarray:
        if self._shared is None:
            raise RunError("worker processes: they were closed")
        return self._shared[name]

    def _command(self, name: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Has every worker do something beside its steps; their answers."""
        mail = self._array("mail")
        for worker, given in zip(self._workers, arguments, strict=True):
            mail[worker.number] = True
            self._signals.send(worker.number + 1)
            with self._watched(worker):
                worker.pipe.send((name, given))
        answers, refusal = [], None
        for worker in self._workers:
            try:
                answers.append(self._read(worker))
            except UserError as error:  # the others' answers must not stay in their pipes
                refusal = refusal or error
        if refusal is not None:
            raise refusal
        return answers

    def _read(self, worker: _Worker) -> Any:
        """The next message of a worker, which may yet be about to send it."""
        wait([worker.pipe, worker.process.sentinel])
        with self._watched(worker):
            if not worker.pipe.poll():
                raise EOFError
            kind, value = worker.pipe.recv()
        if kind == "user error":
            raise UserError(value)
        if kind == "run error":
            raise RunError(value)
        if kind == "error":
            failure = RunError(f"{worker.name} failed: {value.strip().splitlines()[-1]}")
            failure.add_note(value)
            raise failure
        return value

    @contextlib.contextmanager
    def _watched(self, worker: _Worker) -> Iterator[None]:
        """Turns a broken pipe into the news that a worker died."""
        try:
            yield
        except (EOFError, ConnectionError, BrokenPipeError):
            raise _died(worker) from None

    def _check_alive(self) -> None:
        self._check_failed()
        for worker in self._workers:
            if worker.process.exitcode is not None:
                raise _died(worker)

    def _check_failed(self) -> None:
        """Raises what a worker sent before it ended."""
        failed = self._array("failed")
        while failed.any():
            self._read(self._workers[int(failed.argmax())])  # episodes first, then the error


def _layout(spec: EnvSpec, num_envs: int, processes: int) -> Layout:
    n = num_envs
    layout: dict[str, Any] = {
        "signals": Signals.layout(processes + 1),
        "closing": ((1,), bool),
        "mail": ((processes,), bool),  # a command waits in the pipe
        "failed": ((processes,), bool),  # an error waits in the pipe
        "letters": ((processes,), np.int64),  # how many messages about episodes were sent
        "seconds": ((processes, len(CAUSES)), np.float64),
        "state": ((n,), np.uint8),
        "actions": ((n, spec.action_size), np.float32),
        "reward": ((n,), np.float32),
        "terminated": ((n,), bool),
        "truncated": ((n,), bool),
    }
    for name, shape in spec.observations.items():
        layout[f"observation.{name}"] = layout[f"final.{name}"] = ((n, *shape), np.float32)
    return layout


def _died(worker: _Worker) -> RunError:
    worker.process.join()
    code = worker.process.exitcode or 0
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    hint = "; is there enough memory for so many processes?" if code == -signal.SIGKILL else ""
    return RunError(f"{worker.name} died: {how}{hint}")


# Processes that are left open when the interpreter ends would be waited for, for ever.
_open: "weakref.WeakSet[Workers]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for workers in list(_open):
        workers.close()


# -- starting a process ------------------------------------------------------------------------


def _start(factory: HomesFactory, number: int, envs: np.ndarray) -> _Worker:
    """A process that makes its homes and sends their spec."""
    context = _context(factory)
    ours, theirs = context.Pipe()
    with _single_threaded():
        process = context.Process(
            target=_work,
            args=(factory, number, envs.tolist(), theirs, dict(os.environ)),
            name=f"tpsrl worker {number}",
            daemon=True,
        )
        process.start()
    theirs.close()  # so that a worker's death ends the stream on our side
    return _Worker(number, envs, process, ours)


def _context(factory: HomesFactory) -> Any:
    """Forks of a clean process that has imported what workers need; elsewhere fresh processes.

    So importing takes its second once and not once a worker, and the memory of it is shared.
    """
    if not sys.platform.startswith("linux"):
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    modules = {__name__, type(factory).__module__} - {"__main__"}
    context.set_forkserver_preload(sorted(modules))
    with _single_threaded(), _ignored():
        multiprocessing.forkserver.ensure_running()
    return context


@contextlib.contextmanager
def _single_threaded() -> Iterator[None]:
    """What is started inside has numeric libraries with one thread."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def _ignored() -> Iterator[None]:
    """What is started inside ignores the signals that are left to the main process."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread may say; workers say so themselves as well.
        return
    before = {s: signal.signal(s, signal.SIG_IGN) for s in _signals_left_to_main()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _signals_left_to_main() -> list[signal.Signals]:
    return [signal.Signals[name] for name in _LEFT_TO_MAIN if name in signal.Signals.__members__]


# -- inside a worker ---------------------------------------------------------------------------


def _work(
    factory: HomesFactory,
    number: int,
    envs: list[int],
    pipe: Connection,
    environment: dict[str, str],
) -> None:
    """A worker's life."""
    _settle_in(environment)
    failed: Callable[[], None] = lambda: None  # noqa: E731
    try:
        homes = factory(envs)
        pipe.send(("spec", homes.spec))
        desk = _Desk(homes, number, envs, pipe, SharedArrays.receive(pipe))
        failed = desk.tell_failure
        desk.serve()
        homes.close()
    except (EOFError, BrokenPipeError):
        pass  # The main process is gone or has closed.
    except BaseException as error:
        with contextlib.suppress(OSError):
            pipe.send(_report(error, number))
            failed()


def _report(error: BaseException, number: int) -> tuple[str, str]:
    """An error as a message: its kind, and what the main process has to say."""
    if isinstance(error, UserError):
        return ("user error", str(error))
    if isinstance(error, RunError):
        return ("run error", f"worker {number}: {error}")
    return ("error", "".join(traceback.format_exception(error)))


def _settle_in(environment: dict[str, str]) -> None:
    """Makes this process one that ends with the main process, and leaves signals to it."""
    for number in _signals_left_to_main():
        signal.signal(number, signal.SIG_IGN)
    # A fork of the clean process would see the variables of the time when that was started.
    os.environ.clear()
    os.environ.update(environment)
    if sys.platform.startswith("linux"):
        set_death_signal = 1  # PR_SET_PDEATHSIG: with the process that this one was forked from
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    """Ends this process with the main process, wherever it is; costs nothing meanwhile."""
    wait([sentinel])
    os._exit(1)


class _Desk:
    """What a worker works on: its homes, and its rows of the shared memory."""

    def __init__(
        self, homes: Homes, number: int, envs: list[int], pipe: Connection, shared: SharedArrays
    ) -> None:
        self._homes, self._number, self._pipe, self._shared = homes, number, pipe, shared
        self._signals = Signals(shared["signals"])
        self._first = envs[0]
        self._rows = slice(envs[0], envs[-1] + 1)
        self._all = list(range(len(envs)))
        self._stepping = Stopwatch()
        self._state = shared["state"][self._rows]
        self._closing, self._mail = shared["closing"], shared["mail"]

    def serve(self) -> None:
        """Steps and answers until it is told to close."""
        while not self._closing[0]:
            if not self._signals.receive(self._number + 1, _SLICE_S):
                continue
            if self._mail[self._number]:
                self._mail[self._number] = False
                self._obey(*self._pipe.recv())
            asked = np.flatnonzero(self._state == _ASKED)
            if len(asked):
                self._step(asked)

    def tell_failure(self) -> None:
        """Says that an error waits in the pipe."""
        self._shared["failed"][self._number] = True
        self._signals.send(_READY)

    def _step(self, asked: np.ndarray) -> None:
        """Steps homes (m,), of this worker's numbers."""
        rows: Any = self._rows if len(asked) == len(self._all) else asked + self._first
        shared = self._shared
        with self._stepping:
            done = self._homes.step(asked.tolist(), shared["actions"][rows])
        self._show(rows, done.observation)
        shared["reward"][rows] = done.reward
        shared["terminated"][rows] = done.terminated
        shared["truncated"][rows] = done.truncated
        if done.final is not None:
            cut = asked[done.truncated] + self._first
            for name, values in done.final.items():
                shared[f"final.{name}"][cut] = values
        if done.episodes:
            self._pipe.send(("episodes", done.episodes))
            shared["letters"][self._number] += 1
        self._note_time()
        self._state[asked] = _ANSWERED
        self._signals.send(_READY)

    def _obey(self, name: str, given: tuple[Any, ...]) -> None:
        """Carries out a command and sends its answer."""
        answer: Any = None
        try:
            if name == "reset":
                with self._stepping:
                    self._show(self._rows, self._homes.reset(self._all))
                self._note_time()
            elif name == "snapshot":
                answer = [self._homes.snapshot(env) for env in self._all]
            else:
                for env, (arrays, note) in zip(self._all, given[0], strict=True):
                    self._homes.restore(env, arrays, note)
                self._show(self._rows, self._homes.observe(self._all))
        except UserError as error:
            self._pipe.send(("user error", str(error)))
        else:
            self._pipe.send(("answer", answer))

    def _show(self, rows: Any, observation: Observation) -> None:
        for name, values in observation.items():
            self._shared[f"observation.{name}"][rows] = values

    def _note_time(self) -> None:
        spent = by_cause(self._stepping.seconds, self._homes.seconds)
        self._shared["seconds"][self._number] = [spent[cause] for cause in CAUSES]
