"""Main function of environment worker processes; `tpsrl.rl.envs.worker_group` launches them."""

import contextlib
import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from tpsrl.errors import RunError, UserError
from tpsrl.rl.envs.messages import MessagePipe, Outbox
from tpsrl.rl.envs.pool import CAUSES, by_cause
from tpsrl.rl.envs.shared import SharedArrays, Signals
from tpsrl.rl.envs.step_buffers import IDLE, READY, STEPPING, StepBuffers, check_finite
from tpsrl.rl.envs.stopwatch import Stopwatch
from tpsrl.rl.envs.vec_env import Observation, VecEnv, VecEnvFactory
from tpsrl.runtime import processes

MAIN_CHANNEL = 0  # channel of signals to the main process; worker i receives on channel i + 1
CHECK_EVERY_S = 1.0  # interval at which a wait checks whether the other processes live
MAX_QUARANTINED = 255  # start states
# Only the main process acts on these signals; it may need its workers for a last checkpoint.
_LEFT_TO_MAIN = ("SIGINT", "SIGTERM", "SIGUSR1")


def work(
    factory: bytes,
    number: int,
    envs: list[int],
    restarts: int,
    pipe: MessagePipe,
    environment: dict[str, str],
) -> None:
    """Runs a worker process.

    Args:
        factory: pickled factory of its environments; unpickled after `environment` is set, whose
            variables may name modules that register parts of the factory
        number: number of the worker
        envs: numbers of its environments among all
        restarts: number of earlier workers with these environments
        pipe: to the main process; carries the spec, then the shared memory, then commands,
            replies to them, episodes, and an error at the end
        environment: environment variables of the main process
    """
    _attach_to_main(environment)
    outbox = Outbox(pipe)
    report_failure: Callable[[], None] = lambda: None  # noqa: E731
    try:
        make: VecEnvFactory = pickle.loads(factory)
        vec_env = make(envs)
        if restarts:
            vec_env.reseed(restarts)
        outbox.put(("spec", vec_env.spec))
        loop = _WorkerLoop(vec_env, number, envs, pipe, outbox, SharedArrays.receive(pipe))
        report_failure = loop.report_failure
        loop.run()
        vec_env.close()
    except (EOFError, ConnectionError):
        pass  # The main process is gone or has closed.
    except BaseException as error:
        with contextlib.suppress(OSError):
            outbox.put(_error_message(error, number))
            report_failure()
            outbox.flush()


def signals_left_to_main() -> list[signal.Signals]:
    """Returns the signals that workers ignore."""
    return [signal.Signals[name] for name in _LEFT_TO_MAIN if name in signal.Signals.__members__]


def _error_message(error: BaseException, number: int) -> tuple[str, str]:
    """Converts an error to a message: its kind, and the text for the main process."""
    if isinstance(error, UserError):
        return ("user error", str(error))
    if isinstance(error, RunError):
        return ("run error", f"worker {number}: {error}")
    return ("error", "".join(traceback.format_exception(error)))


def _attach_to_main(environment: dict[str, str]) -> None:
    """Makes this process end with the main process, and ignore the signals that are left to it."""
    for number in signals_left_to_main():
        signal.signal(number, signal.SIG_IGN)
    # A fork has the variables with which the fork server was started, which may be outdated.
    os.environ.clear()
    os.environ.update(environment)
    processes.end_with_parent()


class _WorkerLoop:
    """Steps a worker's environments and executes commands; writes its rows of shared memory."""

    def __init__(
        self,
        vec_env: VecEnv,
        number: int,
        envs: list[int],
        pipe: MessagePipe,
        outbox: Outbox,
        shared: SharedArrays,
    ) -> None:
        self._vec_env, self._number, self._shared = vec_env, number, shared
        self._pipe, self._outbox = pipe, outbox
        self._signals = Signals(shared["signals"])
        self._buffers = StepBuffers(vec_env.spec, shared)
        self._envs = np.array(envs)
        self._all = list(range(len(envs)))
        self._stepping = Stopwatch()
        self._state = shared["state"][envs[0] : envs[-1] + 1]
        self._closing, self._command_pending = shared["closing"], shared["command_pending"]
        self._quarantined, self._known_quarantined = shared["quarantined"], 0
        self._weights, self._known_weights = shared["start_weights"], 0.0

    def run(self) -> None:
        """Runs until the pool is closed."""
        while not self._closing[0]:
            if not self._signals.receive(self._number + 1, CHECK_EVERY_S):
                continue
            if self._command_pending[self._number]:
                self._command_pending[self._number] = False
                self._update_starts()
                self._execute(*self._pipe.recv())
            sent = np.flatnonzero(self._state == STEPPING)
            if len(sent):
                self._update_starts()
                self._step(sent)

    def report_failure(self) -> None:
        """Signals to the main process that an error is in the pipe."""
        self._shared["error_pending"][self._number] = True
        self._signals.send(MAIN_CHANNEL)

    def _update_starts(self) -> None:
        """Passes changes of excluded start states and of start weights to the environments."""
        if self._weights[0] != self._known_weights:
            self._known_weights = float(self._weights[0])
            self._vec_env.weigh(self._weights[1:].copy())
        count = int(self._quarantined[0])
        if count != self._known_quarantined:
            self._vec_env.avoid(self._quarantined[1 : 1 + count].tolist())
            self._known_quarantined = count

    def _step(self, sent: np.ndarray) -> None:
        """Steps environments (m,), given by their numbers in this worker."""
        buffers, envs = self._buffers, self._envs[sent]
        before = self._stepping.seconds
        with self._stepping:
            done = self._vec_env.step(sent.tolist(), buffers.actions[envs])
        # An environment whose episode ended is already at its next start, unlike this array.
        starts = self._shared["start_index"][envs].tolist()
        check_finite(envs.tolist(), starts, {**done.observation, "reward": done.reward})
        buffers.put(envs, done)
        if done.episodes:
            self._outbox.put(("episodes", done.episodes))
            self._shared["messages"][self._number] += 1
        self._publish(sent)
        buffers.took_s[envs] = self._stepping.seconds - before
        buffers.ready_at[envs] = time.monotonic()
        self._state[sent] = READY
        self._signals.send(MAIN_CHANNEL)

    def _execute(self, name: str, given: Any) -> None:
        """Executes a command and sends the reply; "begin" has none."""
        reply: Any = None
        try:
            if name in ("reset", "begin"):
                with self._stepping:
                    shown = self._vec_env.reset(self._all)
                self._show(shown)
            elif name == "snapshot":
                reply = [self._vec_env.snapshot(env) for env in self._all]
            else:
                for env, (arrays, note) in zip(self._all, given, strict=True):
                    self._vec_env.restore(env, arrays, note)
                self._show(self._vec_env.observe(self._all))
        except UserError as error:
            self._outbox.put(("user error", str(error)))
            return
        if name == "begin":
            self._buffers.ready_at[self._envs] = time.monotonic()
            self._state[:] = IDLE
            self._signals.send(MAIN_CHANNEL)
        else:
            self._outbox.put(("reply", reply))

    def _show(self, observation: Observation) -> None:
        starts = [self._vec_env.start_index(env) for env in self._all]
        check_finite(self._envs.tolist(), starts, observation)
        self._buffers.show(self._envs, observation)
        self._publish(np.array(self._all))

    def _publish(self, rows: np.ndarray) -> None:
        """Writes the values that the main process needs even after this process has died."""
        spent = by_cause(self._stepping.seconds, self._vec_env.seconds)
        self._shared["seconds"][self._number] = [spent[cause] for cause in CAUSES]
        for row in rows.tolist():
            self._shared["start_index"][self._envs[row]] = self._vec_env.start_index(row)
