"""An environment worker process, from the inside; `tpsrl.rl.envs.workers` starts and drives it."""

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from tpsrl.errors import RunError, UserError
from tpsrl.rl.collection.stopwatch import Stopwatch
from tpsrl.rl.envs.buffers import ANSWERED, ASKED, IDLE, Answers, check_finite
from tpsrl.rl.envs.interface import Homes, HomesFactory, Observation
from tpsrl.rl.envs.serial import CAUSES, by_cause
from tpsrl.rl.envs.shared import SharedArrays, Signals

READY = 0  # the channel on which workers signal; worker i is signalled on channel i + 1
SLICE_S = 1.0  # a wait is interrupted so often to see whether the others live
MOST_AVOIDED = 255  # starts in quarantine
# The main process decides what these mean, and may need its workers for a last checkpoint.
_LEFT_TO_MAIN = ("SIGINT", "SIGTERM", "SIGUSR1")


def work(
    factory: HomesFactory,
    number: int,
    envs: list[int],
    life: int,
    pipe: Connection,
    environment: dict[str, str],
) -> None:
    """A worker's life.

    Args:
        factory: of its homes
        number: of the worker
        envs: numbers of its homes in the whole
        life: how many workers had these homes before it
        pipe: to the main process; over it go the spec, then the shared memory, then commands,
            answers to them, episodes, and an error at the end
        environment: variables of the main process
    """
    _settle_in(environment)
    failed: Callable[[], None] = lambda: None  # noqa: E731
    try:
        homes = factory(envs)
        if life:
            homes.renew(life)
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


def signals_left_to_main() -> list[signal.Signals]:
    """Those that workers ignore."""
    return [signal.Signals[name] for name in _LEFT_TO_MAIN if name in signal.Signals.__members__]


def _report(error: BaseException, number: int) -> tuple[str, str]:
    """An error as a message: its kind, and what the main process has to say."""
    if isinstance(error, UserError):
        return ("user error", str(error))
    if isinstance(error, RunError):
        return ("run error", f"worker {number}: {error}")
    return ("error", "".join(traceback.format_exception(error)))


def _settle_in(environment: dict[str, str]) -> None:
    """Makes this process one that ends with the main process, and leaves signals to it."""
    for number in signals_left_to_main():
        signal.signal(number, signal.SIG_IGN)
    # A fork of the clean process would see the variables of the time when that was started.
    os.environ.clear()
    os.environ.update(environment)
    if sys.platform.startswith("linux"):
        set_death_signal = 1  # PR_SET_PDEATHSIG: with the process that this one was forked from
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
    parent = parent_process()
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
        self._answers = Answers(homes.spec, shared)
        self._envs = np.array(envs)
        self._all = list(range(len(envs)))
        self._stepping = Stopwatch()
        self._state = shared["state"][envs[0] : envs[-1] + 1]
        self._closing, self._mail = shared["closing"], shared["mail"]
        self._avoided, self._heeded = shared["avoided"], 0

    def serve(self) -> None:
        """Steps and answers until it is told to close."""
        while not self._closing[0]:
            if not self._signals.receive(self._number + 1, SLICE_S):
                continue
            if self._mail[self._number]:
                self._mail[self._number] = False
                self._heed()
                self._obey(*self._pipe.recv())
            asked = np.flatnonzero(self._state == ASKED)
            if len(asked):
                self._heed()
                self._step(asked)

    def tell_failure(self) -> None:
        """Says that an error waits in the pipe."""
        self._shared["failed"][self._number] = True
        self._signals.send(READY)

    def _heed(self) -> None:
        """Tells the homes which starts are in quarantine, if that changed."""
        count = int(self._avoided[0])
        if count != self._heeded:
            self._homes.avoid(self._avoided[1 : 1 + count].tolist())
            self._heeded = count

    def _step(self, asked: np.ndarray) -> None:
        """Steps homes (m,), of this worker's numbers."""
        answers, envs = self._answers, self._envs[asked]
        before = self._stepping.seconds
        with self._stepping:
            done = self._homes.step(asked.tolist(), answers.actions[envs])
        # Where an episode ended, its home is at the next start already.
        starts = self._shared["start"][envs].tolist()
        check_finite(envs.tolist(), starts, {**done.observation, "reward": done.reward})
        answers.put(envs, done)
        if done.episodes:
            self._pipe.send(("episodes", done.episodes))
            self._shared["letters"][self._number] += 1
        self._note(asked)
        answers.took_s[envs] = self._stepping.seconds - before
        answers.answered_at[envs] = time.monotonic()
        self._state[asked] = ANSWERED
        self._signals.send(READY)

    def _obey(self, name: str, given: Any) -> None:
        """Carries out a command and sends its answer; "begin" has none."""
        answer: Any = None
        try:
            if name in ("reset", "begin"):
                with self._stepping:
                    shown = self._homes.reset(self._all)
                self._show(shown)
            elif name == "snapshot":
                answer = [self._homes.snapshot(env) for env in self._all]
            else:
                for env, (arrays, note) in zip(self._all, given, strict=True):
                    self._homes.restore(env, arrays, note)
                self._show(self._homes.observe(self._all))
        except UserError as error:
            self._pipe.send(("user error", str(error)))
            return
        if name == "begin":
            self._answers.answered_at[self._envs] = time.monotonic()
            self._state[:] = IDLE
            self._signals.send(READY)
        else:
            self._pipe.send(("answer", answer))

    def _show(self, observation: Observation) -> None:
        starts = [self._homes.start(home) for home in self._all]
        check_finite(self._envs.tolist(), starts, observation)
        self._answers.show(self._envs, observation)
        self._note(np.array(self._all))

    def _note(self, homes: np.ndarray) -> None:
        """What the main process wants to know of this one when it is dead."""
        spent = by_cause(self._stepping.seconds, self._homes.seconds)
        self._shared["seconds"][self._number] = [spent[cause] for cause in CAUSES]
        for home in homes.tolist():
            self._shared["start"][self._envs[home]] = self._homes.start(home)
