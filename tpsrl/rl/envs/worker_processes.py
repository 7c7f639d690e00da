"""Launching and reaping the processes of environment workers."""

import contextlib
import dataclasses
import multiprocessing
import multiprocessing.forkserver
import os
import pickle
import signal
import sys
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

from tpsrl.rl.envs.messages import MessagePipe
from tpsrl.rl.envs.vec_env import VecEnvFactory
from tpsrl.rl.envs.worker import signals_left_to_main, work
from tpsrl.runtime import processes

_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclasses.dataclass(slots=True)
class Worker:
    """A worker process, as seen by the main process."""

    number: int
    envs: np.ndarray
    process: BaseProcess
    pipe: MessagePipe
    messages: int = 0  # number of messages read about episodes
    restarts: int = 0  # number of earlier processes with its environments
    attached: bool = True  # whether it has the shared memory
    launched_at: float = dataclasses.field(default_factory=time.monotonic)
    attached_at: float = 0.0

    @property
    def name(self) -> str:
        """Name of the worker in messages."""
        return f"worker {self.number} (environments {self.envs[0]} to {self.envs[-1]})"

    @property
    def may_live(self) -> bool:
        """Whether a replacement may survive, for which the script needs a main guard.

        Waits for the process to end.
        """
        return not processes.is_unguarded(self.process)

    def died(self) -> str:
        """Describes how the process ended, for messages; waits for the end."""
        return f"{self.name} died: {processes.exit_reason(self.process)}"

    def reap(self) -> None:
        """Ends the process, if it has not ended, and frees its resources in this process."""
        if self.process.exitcode is None:
            self.process.kill()
            _wake_server()
            self.process.join()
        self.pipe.close()
        self.process.close()


def _wake_server() -> None:
    """Resumes the fork server, which reports how forks ended, in case it was stopped."""
    server = getattr(multiprocessing.forkserver._forkserver, "_forkserver_pid", None)
    if server is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server, signal.SIGCONT)


def launch(factory: VecEnvFactory, number: int, envs: np.ndarray, restarts: int = 0) -> Worker:
    """Launches a process that makes its environments and sends their spec."""
    processes.end_if_unguarded()
    context, packed = _context(factory), pickle.dumps(factory)
    ours, theirs = MessagePipe.pair()
    with _single_threaded():
        process = context.Process(
            target=work,
            args=(packed, number, envs.tolist(), restarts, theirs, dict(os.environ)),
            name=f"tpsrl worker {number}",
            daemon=True,
        )
        process.start()
    theirs.close()  # so that a worker's death ends the stream on our side
    return Worker(number, envs, process, ours, restarts=restarts)


def _context(factory: VecEnvFactory) -> Any:
    """Returns a context that forks a clean process with the imports of workers, or that spawns.

    Forking, on Linux, shares the memory of the imports, and takes their second once instead of once
    per worker.
    """
    if not sys.platform.startswith("linux"):
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    modules = {work.__module__, type(factory).__module__} - {"__main__"}
    context.set_forkserver_preload(sorted(modules))
    with _single_threaded(), processes.left_to_this_one(*signals_left_to_main()):
        multiprocessing.forkserver.ensure_running()
    return context


@contextlib.contextmanager
def _single_threaded() -> Iterator[None]:
    """Limits numeric libraries to one thread in processes started inside the block."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
