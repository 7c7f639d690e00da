"""The worker processes of a pool: their shared memory, their pipes, and messages over these."""

import atexit
import contextlib
import multiprocessing.util  # noqa: F401 (its hook at exit has to be registered before ours)
import time
import weakref
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from typing import Any

import numpy as np

from tpsrl.errors import RunError, UserError
from tpsrl.rl.envs.pool import CAUSES
from tpsrl.rl.envs.shared import ArrayLayout, SharedArrays, Signals
from tpsrl.rl.envs.step_buffers import LAUNCHING, StepBuffers
from tpsrl.rl.envs.vec_env import EnvSpec, EpisodeStats, VecEnvFactory
from tpsrl.rl.envs.worker import MAX_QUARANTINED
from tpsrl.rl.envs.worker_processes import Worker, launch

_PATIENCE_S = 5.0  # for workers to end by themselves


class WorkerFailed(RunError):
    """A worker failed, died or hung."""

    def __init__(self, worker: Worker, message: str) -> None:
        super().__init__(message)
        self.worker = worker


class WorkerGroup:
    """Workers with a block of the environments each. Every worker ends when this process does.

    `buffers` are the environments' in shared memory, `owner` (num_envs,) is the worker of each, and
    `episodes` are those that the workers have told of and nobody has taken from the list yet.

    Args:
        factory: of the environments
        num_envs: how many
        processes: how many workers have them

    Raises:
        UserError: `processes` is out of range, or one that the factory raised.
        RunError: a worker failed or died, with the cause.
    """

    def __init__(self, factory: VecEnvFactory, num_envs: int, processes: int) -> None:
        if not 1 <= processes <= num_envs:
            raise UserError(
                f"processes: {processes} is out of range, must be between 1 and the "
                f"{num_envs} environments"
            )
        self._factory = factory
        self.workers: list[Worker] = []
        self.episodes: list[EpisodeStats] = []
        blocks = np.array_split(np.arange(num_envs), processes)
        self.owner = np.repeat(np.arange(processes), [len(envs) for envs in blocks])
        self._shared: SharedArrays | None = None
        self._buffers: StepBuffers | None = None
        _open.add(self)
        try:
            for number, envs in enumerate(blocks):
                self.workers.append(launch(factory, number, envs))
            specs: list[EnvSpec] = [self.read(worker) for worker in self.workers]
            self.spec = specs[0]
            self._share(num_envs)
        except BaseException:
            self.close()
            raise

    def _share(self, num_envs: int) -> None:
        """Makes the shared memory and hands it to the workers."""
        shared = SharedArrays(_layout(self.spec, num_envs, len(self.workers)))
        self.signals = Signals(shared["signals"])
        self.signals.begin()
        self._shared = shared
        self._buffers = StepBuffers(self.spec, shared)
        for worker in self.workers:
            self._send_memory(worker)

    @property
    def is_open(self) -> bool:
        """Whether there is shared memory."""
        return self._shared is not None

    @property
    def buffers(self) -> StepBuffers:
        """The environments' step buffers.

        Raises:
            RunError: the workers were closed.
        """
        if self._shared is None or self._buffers is None:
            raise RunError("worker processes: they were closed")
        return self._buffers

    def array(self, name: str) -> np.ndarray:
        """One of the shared arrays, by the names in `_layout`.

        Raises:
            RunError: the workers were closed.
        """
        if self._shared is None:
            raise RunError("worker processes: they were closed")
        return self._shared[name]

    # -- messages ------------------------------------------------------------------------------

    def read(self, worker: Worker) -> Any:
        """The next message of a worker, which may yet be about to send it.

        Raises:
            UserError: the message is one.
            WorkerFailed: the message is an error, or the worker died.
        """
        pipe = worker.pipe
        with self._dead_if_broken(worker):
            while not pipe.poll():
                if pipe.fileno() not in wait([pipe.fileno(), worker.process.sentinel]):
                    raise EOFError
            kind, value = pipe.recv()
        if kind == "user error":
            raise UserError(value)
        if kind == "run error":
            raise WorkerFailed(worker, value)
        if kind == "error":
            last = value.strip().splitlines()[-1]
            failure = WorkerFailed(worker, f"{worker.name} failed: {last}")
            failure.add_note(value)
            raise failure
        return value

    def read_episodes(self, worker: Worker) -> None:
        """Reads a message about episodes, which is to come next."""
        self.episodes += self.read(worker)
        worker.messages += 1

    def fetch_episodes(self, envs: np.ndarray) -> list[WorkerFailed]:
        """Reads what the workers of these environments sent about episodes; those that cannot."""
        sent, failures = self.array("messages"), []
        for number in np.unique(self.owner[envs]):
            worker = self.workers[number]
            try:
                while worker.messages < sent[number]:
                    self.read_episodes(worker)
            except WorkerFailed as failure:
                failures.append(failure)
        return failures

    def send(self, worker: Worker, command: str, given: Any) -> None:
        """Sends a worker a command, see `tpsrl.rl.envs.worker`."""
        self.array("command_pending")[worker.number] = True
        self.signals.send(worker.number + 1)
        with self._dead_if_broken(worker):
            worker.pipe.send((command, given))

    def command(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        """Has every worker do something beside its steps; their replies."""
        sent: list[Worker] = []
        trouble: Exception | None = None
        for worker, given in zip(self.workers, arguments, strict=True):
            try:
                self.send(worker, name, given)
                sent.append(worker)
            except RunError as error:
                trouble = trouble or error
        replies = []
        for worker in sent:  # nobody's reply must stay in its pipe
            try:
                replies.append(self._reply(worker))
            except (UserError, RunError) as error:
                trouble = trouble or error
        if trouble is not None:
            raise trouble
        return replies

    def _reply(self, worker: Worker) -> Any:
        """A worker's reply to a command; what it says of episodes before is kept."""
        while True:
            sent = self.array("messages")[worker.number]
            value = self.read(worker)
            if worker.messages == sent:
                return value
            self.episodes += value
            worker.messages += 1

    @contextlib.contextmanager
    def _dead_if_broken(self, worker: Worker) -> Iterator[None]:
        """Turns a broken pipe into the news that a worker died."""
        try:
            yield
        except (EOFError, ConnectionError):
            raise WorkerFailed(worker, worker.died()) from None

    def _send_memory(self, worker: Worker) -> None:
        assert self._shared is not None
        with self._dead_if_broken(worker):
            self._shared.send(worker.pipe)

    # -- processes -----------------------------------------------------------------------------

    def replace(self, worker: Worker) -> None:
        """Ends a worker and launches another for its environments; `attach` is to come."""
        worker.process.kill()
        worker.process.join()
        worker.reap()
        number, envs = worker.number, worker.envs
        self.array("error_pending")[number] = self.array("command_pending")[number] = False
        self.array("messages")[number] = 0
        self.buffers.state[envs] = LAUNCHING
        self.episodes = [e for e in self.episodes if e.env not in envs]
        new = launch(self._factory, number, envs, worker.restarts + 1)
        new.attached, new.launched_at = False, time.monotonic()
        self.workers[number] = new

    def attach(self, worker: Worker) -> None:
        """Hands the shared memory to a new worker, if it has made its environments by now.

        Raises:
            WorkerFailed: it has not come so far.
        """
        if worker.attached:
            return
        with self._dead_if_broken(worker):
            if not worker.pipe.poll():
                return
        self.read(worker)
        self._send_memory(worker)
        self.send(worker, "begin", None)
        worker.attached = True

    def close(self) -> None:
        """Ends processes and frees memory; safe to call twice."""
        _open.discard(self)
        shared, self._shared = self._shared, None
        if shared is not None:
            shared["closing"][:] = True
            for worker in self.workers:
                self.signals.send(worker.number + 1)
        end = time.monotonic() + (_PATIENCE_S if shared is not None else 0.0)
        for worker in self.workers:
            if not worker.attached:  # It does not know of the shared memory yet.
                worker.process.kill()
            worker.process.join(max(end - time.monotonic(), 0.0))
            worker.reap()
        self.workers = []
        if shared is not None:
            self._buffers = None
            shared.close()


def _layout(spec: EnvSpec, num_envs: int, processes: int) -> ArrayLayout:
    layout: dict[str, Any] = {
        "signals": Signals.layout(processes + 1),
        "closing": ((1,), bool),
        "command_pending": ((processes,), bool),  # in the pipe
        "error_pending": ((processes,), bool),  # in the pipe
        "messages": ((processes,), np.int64),  # about episodes, that were sent
        "seconds": ((processes, len(CAUSES)), np.float64),
        "start_index": ((num_envs,), np.int64),  # of the episode that each environment is in
        "quarantined": ((1 + MAX_QUARANTINED,), np.int64),  # how many starts, and these
    }
    return layout | dict(StepBuffers.layout(spec, num_envs))


# Processes that are left open when the interpreter ends would be waited for, for ever.
_open: "weakref.WeakSet[WorkerGroup]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for group in list(_open):
        group.close()
