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
    """A process as the main process sees it."""

    number: int
    envs: np.ndarray
    process: BaseProcess
    pipe: MessagePipe
    messages: int = 0  # about episodes, that were read
    restarts: int = 0  # how many processes had its environments before
    attached: bool = True  # it has the shared memory
    launched_at: float = dataclasses.field(default_factory=time.monotonic)
    attached_at: float = 0.0

    @property
    def name(self) -> str:
        """For messages."""
        return f"worker {self.number} (environments {self.envs[0]} to {self.envs[-1]})"

    @property
    def may_live(self) -> bool:
        """Whether another in its place may fare better, once it has died; waits for the end."""
        return not processes.is_unguarded(self.process)

    def died(self) -> str:
        """How its process ended, for messages; waits for the end."""
        return f"{self.name} died: {processes.exit_reason(self.process)}"

    def reap(self) -> None:
        """Ends the process, if it has not ended, and frees what this one had of it."""
        if self.process.exitcode is None:
            self.process.kill()
            _wake_server()
            self.process.join()
        self.pipe.close()
        self.process.close()


def _wake_server() -> None:
    """Has the server of forks, which tells how they ended, go on if somebody has stopped it."""
    server = getattr(multiprocessing.forkserver._forkserver, "_forkserver_pid", None)
    if server is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server, signal.SIGCONT)


def launch(factory: VecEnvFactory, number: int, envs: np.ndarray, restarts: int = 0) -> Worker:
    """A process that makes its environments and sends their spec."""
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
    """Forks of a clean process that has imported what workers need; elsewhere fresh processes.

    So importing takes its second once and not once a worker, and the memory of it is shared.
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
