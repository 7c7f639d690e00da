"""The worker processes of a pool: their shared memory, their pipes, and messages over the pipes."""

import atexit
import contextlib
import dataclasses
import math
import multiprocessing.util  # noqa: F401 (its hook at exit has to be registered before ours)
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from typing import Any

import numpy as np

from tpsrl.errors import RunError, UserError
from tpsrl.rl.envs.pool import CAUSES, NO_START, EnvsFailed
from tpsrl.rl.envs.shared import ArrayLayout, SharedArrays, Signals
from tpsrl.rl.envs.step_buffers import LAUNCHING, StepBuffers
from tpsrl.rl.envs.vec_env import EnvSpec, EpisodeStats, VecEnvFactory
from tpsrl.rl.envs.worker import MAX_QUARANTINED
from tpsrl.rl.envs.worker_processes import Worker, launch

_PATIENCE_S = 5.0  # for workers to end before they are killed
_FEW = 4  # maximum number of start states in a message


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Limits on workers.

    A worker has hung if it sends nothing for `launch_s` seconds at its launch, or for `hang_s` at
    anything else. Up to `deaths` workers that die before all have begun are launched again.
    """

    launch_s: float = math.inf
    hang_s: float = math.inf
    deaths: int = 0


_NO_LIMITS = Limits()


class WorkerFailed(EnvsFailed):
    """A worker failed, died or hung."""

    def __init__(self, worker: Worker, message: str) -> None:
        super().__init__(worker.envs, message)
        self.worker = worker


class WorkerDied(WorkerFailed):
    """A worker's process ended without reporting an error."""


class WorkerGroup:
    """Workers with a block of the environments each. Every worker ends when this process does.

    `buffers` are the environments' step buffers in shared memory, `owner` (num_envs,) is the worker
    of each environment, and `episodes` are the records received from workers that nothing has
    removed from the list yet.

    Args:
        factory: makes the environments
        num_envs: number of environments
        processes: number of workers
        limits: limits on workers
        say: receives messages about workers that died before all had begun

    Raises:
        UserError: `processes` is out of range, or the factory raised this error.
        RunError: a worker failed, died or hung; gives the cause.
    """

    def __init__(
        self,
        factory: VecEnvFactory,
        num_envs: int,
        processes: int,
        limits: Limits = _NO_LIMITS,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        if not 1 <= processes <= num_envs:
            raise UserError(
                f"processes: {processes} is out of range, must be between 1 and the "
                f"{num_envs} environments"
            )
        self._factory, self._limits, self._say = factory, limits, say
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
            deaths = 0
            for number in range(processes):
                deaths = self._await_launch(number, deaths)
            self._share(num_envs)
        except BaseException:
            self.close()
            raise

    def _await_launch(self, number: int, deaths: int) -> int:
        """Waits until a worker has made its environments; returns the number of deaths so far."""
        while True:
            worker = self.workers[number]
            try:
                self.spec: EnvSpec = self.read(worker, "its launch", self._limits.launch_s)
                return deaths
            except WorkerDied as failure:
                deaths += 1
                if deaths > self._limits.deaths or not worker.may_live:
                    raise
                self._say(f"{failure} while it started; it is replaced")
                worker.reap()
                # Nothing has begun yet, so the new process does not count as a restart.
                self.workers[number] = launch(self._factory, number, worker.envs)

    def _share(self, num_envs: int) -> None:
        """Makes the shared memory and sends it to the workers."""
        shared = SharedArrays(_layout(self.spec, num_envs, len(self.workers)))
        shared["start_index"][:] = NO_START
        self.signals = Signals(shared["signals"])
        self.signals.begin()
        self._shared = shared
        self._buffers = StepBuffers(self.spec, shared)
        for worker in self.workers:
            self._send_memory(worker)

    @property
    def is_open(self) -> bool:
        """Whether the shared memory exists."""
        return self._shared is not None

    @property
    def buffers(self) -> StepBuffers:
        """The environments' step buffers.

        Raises:
            RunError: the workers were closed.
        """
        if self._shared is None or self._buffers is None:
            raise RunError("worker processes: closed")
        return self._buffers

    def array(self, name: str) -> np.ndarray:
        """Returns a shared array by its name in `_layout`.

        Raises:
            RunError: the workers were closed.
        """
        if self._shared is None:
            raise RunError("worker processes: closed")
        return self._shared[name]

    # -- messages ------------------------------------------------------------------------------

    def read(self, worker: Worker, at: str, limit_s: float, since: float | None = None) -> Any:
        """Returns the next message of a worker, waiting for it.

        Args:
            worker: sender of the message
            at: the worker's activity, for the message if it hangs
            limit_s: seconds without data after which the worker has hung
            since: when the worker began the activity, by `time.monotonic`; None: now

        Raises:
            UserError: reported by the worker.
            WorkerFailed: the worker reported another error, died or hung.
        """
        pipe = worker.pipe
        until = limit_s + (time.monotonic() if since is None else since)
        with self._dead_if_broken(worker):
            while not pipe.poll():
                left = max(until - time.monotonic(), 0.0)
                ends = [pipe.fileno(), worker.process.sentinel]
                come = wait(ends, None if math.isinf(left) else left)
                if not come:
                    raise self.hung(worker, at, limit_s)
                if pipe.fileno() not in come:
                    raise EOFError
                until = time.monotonic() + limit_s  # the rest of the message has the same limit
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
        """Reads the next message, which must be about episodes."""
        self.episodes += self.read(worker, "an episode's record", self._limits.hang_s)
        worker.messages += 1

    def fetch_episodes(self, envs: np.ndarray) -> list[WorkerFailed]:
        """Reads the records of episodes sent by the workers of environments; returns failures."""
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
        limit = self._limits.hang_s
        with self._dead_if_broken(worker):
            try:
                worker.pipe.send((command, given), None if math.isinf(limit) else limit)
            except TimeoutError:
                raise self.hung(worker, command, limit) from None

    def command(
        self, name: str, arguments: Sequence[Any] | None = None
    ) -> tuple[list[Any], list[WorkerFailed]]:
        """Sends a command to every worker and collects the replies.

        Args:
            name: the command, see `tpsrl.rl.envs.worker`
            arguments: one for each worker

        Returns:
            The replies, in the order of workers, and the failures of workers that did not reply.

        Raises:
            UserError: reported by a worker.
        """
        sent: list[tuple[Worker, float]] = []
        replies: list[Any] = []
        failures: list[WorkerFailed] = []
        refused: UserError | None = None
        given = [None for _ in self.workers] if arguments is None else arguments
        for worker, one in zip(self.workers, given, strict=True):
            try:
                self.send(worker, name, one)
                sent.append((worker, time.monotonic()))
            except WorkerFailed as failure:
                failures.append(failure)
        for worker, since in sent:  # no reply must remain in its pipe
            try:
                replies.append(self._reply(worker, name, since))
            except UserError as error:
                refused = refused or error
            except WorkerFailed as failure:
                failures.append(failure)
        if refused is not None:
            raise refused
        return replies, failures

    def _reply(self, worker: Worker, command: str, since: float) -> Any:
        """Returns a worker's reply to a command; keeps the episodes sent before it."""
        while True:
            sent = self.array("messages")[worker.number]
            value = self.read(worker, command, self._limits.hang_s, since)
            if worker.messages == sent:
                return value
            self.episodes += value
            worker.messages += 1

    def hung(
        self, worker: Worker, at: str, seconds: float, envs: np.ndarray | None = None
    ) -> WorkerFailed:
        """Kills a worker that was at an activity for `seconds`; returns the failure."""
        worker.process.kill()
        where = self.starts_of(worker.envs if envs is None else envs)
        return WorkerFailed(worker, f"{worker.name} hung: {seconds:.0f} s at {at} ({where})")

    def starts_of(self, envs: np.ndarray) -> str:
        """Describes the current start states of environments, for messages."""
        known = np.full(1, NO_START) if self._shared is None else self.array("start_index")[envs]
        starts = np.unique(known[known != NO_START])
        return f"start {some(starts)}" if len(starts) else "before the first start"

    @contextlib.contextmanager
    def _dead_if_broken(self, worker: Worker) -> Iterator[None]:
        """Converts the error of a broken pipe to `WorkerDied`."""
        try:
            yield
        except (EOFError, ConnectionError):
            raise WorkerDied(worker, worker.died()) from None

    def _send_memory(self, worker: Worker) -> None:
        assert self._shared is not None
        with self._dead_if_broken(worker):
            self._shared.send(worker.pipe)

    # -- processes -----------------------------------------------------------------------------

    def replace(self, worker: Worker) -> None:
        """Ends a worker and launches another for its environments, to be completed by `attach`."""
        worker.process.kill()
        worker.process.join()
        worker.reap()
        number, envs = worker.number, worker.envs
        self.array("error_pending")[number] = self.array("command_pending")[number] = False
        self.array("messages")[number] = 0
        self.buffers.state[envs] = LAUNCHING
        self.array("start_index")[envs] = NO_START
        self.episodes = [e for e in self.episodes if e.env not in envs]
        new = launch(self._factory, number, envs, worker.restarts + 1)
        new.attached = False
        self.workers[number] = new

    def attach(self, worker: Worker) -> None:
        """Sends the shared memory to a new worker, if it has made its environments by now.

        Raises:
            WorkerFailed: the worker failed, died or hung at its launch.
        """
        if worker.attached:
            return
        with self._dead_if_broken(worker):
            if not worker.pipe.poll():
                return
        self.read(worker, "its launch", self._limits.launch_s)
        self._send_memory(worker)
        self.send(worker, "begin", None)
        worker.attached, worker.attached_at = True, time.monotonic()

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
            if not worker.attached:  # It cannot see `closing` without the shared memory.
                worker.process.kill()
            worker.process.join(max(end - time.monotonic(), 0.0))
            worker.reap()
        self.workers = []
        if shared is not None:
            self._buffers = None
            shared.close()


def some(numbers: Sequence[int] | np.ndarray) -> str:
    """Lists the first few numbers."""
    rest = f" and {len(numbers) - _FEW} others" if len(numbers) > _FEW else ""
    return ", ".join(map(str, numbers[:_FEW])) + rest


def _layout(spec: EnvSpec, num_envs: int, processes: int) -> ArrayLayout:
    layout: dict[str, Any] = {
        "signals": Signals.layout(processes + 1),
        "closing": ((1,), bool),
        "command_pending": ((processes,), bool),  # a command is in the pipe
        "error_pending": ((processes,), bool),  # an error is in the pipe
        "messages": ((processes,), np.int64),  # number of messages sent about episodes
        "seconds": ((processes, len(CAUSES)), np.float64),
        "start_index": ((num_envs,), np.int64),  # of the episode that each environment is in
        "start_weights": (
            (1 + spec.start_groups,),
            np.float64,
        ),  # number of changes, then the weights
        "quarantined": ((1 + MAX_QUARANTINED,), np.int64),  # number of start states, then these
    }
    return layout | dict(StepBuffers.layout(spec, num_envs))


# At its end, the interpreter would wait forever for processes that were left open.
_open: "weakref.WeakSet[WorkerGroup]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for group in list(_open):
        group.close()
