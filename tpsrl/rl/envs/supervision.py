"""Supervision of workers that die, hang or report an error, and of the start states involved."""

import collections
import dataclasses
import time
from collections.abc import Callable

import numpy as np

from tpsrl.errors import RunError, UserError
from tpsrl.rl.envs.pool import LostEnvs
from tpsrl.rl.envs.step_buffers import LAUNCHING, STEPPING
from tpsrl.rl.envs.vec_env import Json
from tpsrl.rl.envs.worker import CHECK_EVERY_S, MAX_QUARANTINED
from tpsrl.rl.envs.worker_group import WorkerFailed, WorkerGroup, some
from tpsrl.rl.envs.worker_processes import Worker


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FaultTolerance:
    """Handling of worker failures.

    A worker is ended after `hang_s` seconds at a step or a command, or `launch_s` at its launch;
    after `warn_s` it is reported. More than `max_failures` failures within `window_s` seconds end
    the run. A start state is excluded after `quarantine_after` workers failed during its episodes.
    """

    hang_s: float = 120.0
    launch_s: float = 300.0
    max_failures: int = 10
    window_s: float = 600.0
    quarantine_after: int = 2
    warn_s: float = 10.0


_WATCH_ONLY = FaultTolerance()


class Supervisor:
    """Watches workers and replaces those that fail.

    `launching` is the number of environments without a process at the last poll of the pool;
    `sent_at` (num_envs,) is when each environment was sent its last action, by `time.monotonic`;
    `failures` were found by the pool elsewhere, and are handled by the next `supervise`.

    Args:
        group: the workers
        tolerance: handling of failures; None: failures are raised
        say: receives messages about failures and slow workers
    """

    def __init__(
        self, group: WorkerGroup, tolerance: FaultTolerance | None, say: Callable[[str], None]
    ) -> None:
        self._group, self._tolerance, self._say = group, tolerance, say
        self.lost: list[LostEnvs] = []
        self.failures: list[WorkerFailed] = []
        self.launching = 0
        self.sent_at = np.zeros(len(group.owner))
        self._failed_at: collections.deque[float] = collections.deque()
        self._failures_of_start: collections.Counter[int] = collections.Counter()
        self._checked_at = self._warned_at = 0.0

    def supervise(self) -> None:
        """Replaces workers that failed; at intervals, checks that all live and none hangs.

        Raises:
            RunError: a failure that is not tolerated.
        """
        found, self.failures = self.failures, []
        for failure in found:
            self.fail(failure)
        if self.launching:
            self._attach_new()
        self._read_errors()
        now = time.monotonic()
        if now - self._checked_at < CHECK_EVERY_S:
            return
        self._checked_at = now
        for worker in list(self._group.workers):
            if worker.process.exitcode is not None:
                self.fail(WorkerFailed(worker, worker.died()))
        self._watch(now)

    def fail(self, failure: WorkerFailed) -> None:
        """Raises a failure, or replaces the worker and records what was lost with it.

        Raises:
            RunError: there were too many failures, or none is tolerated.
        """
        worker, cause = failure.worker, str(failure)
        if self._group.workers[worker.number] is not worker:
            return  # It was replaced already.
        if self._tolerance is None or not self._tolerance.max_failures:
            raise failure
        self._count_failure(self._tolerance, cause)
        envs, state = worker.envs, self._group.buffers.state
        starts = self._group.array("start_index")
        at_step = envs[state[envs] == STEPPING]
        self.lost.append(LostEnvs(envs, tuple(starts[envs].tolist()), cause))
        where = self._group.starts_of(envs)
        self._say(f"{cause if where in cause else f'{cause}; {where}'}; it is replaced")
        self._suspect(self._tolerance, np.unique(starts[at_step]).tolist())
        self._group.replace(worker)
        self.launching += len(envs)

    def quarantined(self) -> np.ndarray:
        """Returns the excluded start states (k,)."""
        shared = self._group.array("quarantined")
        return shared[1 : 1 + shared[0]]

    def quarantine(self, starts: list[int]) -> None:
        """Excludes start states from draws; workers apply this from their next step on."""
        shared, known = self._group.array("quarantined"), self.quarantined()
        new = [start for start in starts if start not in known]
        taken = new[: MAX_QUARANTINED - len(known)]
        shared[1 + len(known) : 1 + len(known) + len(taken)] = taken
        shared[0] += len(taken)
        if len(taken) < len(new):
            self._say(f"quarantine is full: start {some(new[len(taken) :])} is still drawn")

    def to_json(self) -> Json:
        """Returns the history of the workers as JSON types, by the names in `pool.SUPERVISED`."""
        restarts = np.zeros(len(self._group.owner), int)
        for worker in self._group.workers:
            restarts[worker.envs] = worker.restarts
        return {
            "quarantine": self.quarantined().tolist(),
            "failures": sorted(self._failures_of_start.items()),
            "restarts": restarts.tolist(),
        }

    def load(self, note: Json) -> None:
        """Continues from the history of other workers; missing entries count as empty.

        Raises:
            UserError: the history is damaged.
        """
        try:
            self.quarantine([int(start) for start in note.get("quarantine", ())])
            failures = {int(start): int(count) for start, count in note.get("failures", ())}
            self._failures_of_start = collections.Counter(failures)
            restarts = np.array(note.get("restarts", [0] * len(self._group.owner)), int)
            for worker in self._group.workers:
                worker.restarts = max(worker.restarts, int(restarts[worker.envs].max()))
        except (TypeError, ValueError, IndexError) as error:
            raise UserError(f"snapshot: the supervision is damaged ({error!r})") from None

    def _attach_new(self) -> None:
        """Sends the shared memory to new workers that have made their environments."""
        for worker in list(self._group.workers):
            try:
                self._group.attach(worker)
            except WorkerFailed as failure:
                self.fail(failure)

    def _read_errors(self) -> None:
        """Reads the errors in pipes, and the episodes before them."""
        for number in np.flatnonzero(self._group.array("error_pending")).tolist():
            worker = self._group.workers[number]
            try:
                while True:
                    self._group.read_episodes(worker)
            except WorkerFailed as failure:
                self.fail(failure)

    def _watch(self, now: float) -> None:
        """Reports slow workers, and ends those that hang."""
        tolerance = self._tolerance or _WATCH_ONLY
        for worker in list(self._group.workers):
            since, envs, what = self._busy_with(worker)
            spent = now - since
            limit = tolerance.hang_s if worker.attached else tolerance.launch_s
            if spent > limit and self._tolerance is not None:
                self.fail(self._group.hung(worker, what, spent, envs))
            elif spent > tolerance.warn_s and now - self._warned_at > tolerance.warn_s:
                self._warned_at = now
                where = self._group.starts_of(envs)
                self._say(f"waiting for {worker.name}, {spent:.0f} s at {what} ({where})")

    def _busy_with(self, worker: Worker) -> tuple[float, np.ndarray, str]:
        """Returns the time since which a worker is busy, its environments, and its activity.

        The time is infinite for an idle worker.
        """
        state = self._group.buffers.state[worker.envs]
        if (state == LAUNCHING).any():
            since = worker.attached_at if worker.attached else worker.launched_at
            return since, worker.envs, "its first reset" if worker.attached else "its launch"
        envs = worker.envs[state == STEPPING]
        since = float(self.sent_at[envs].min()) if len(envs) else float("inf")
        return since, envs, "a step"

    def _count_failure(self, tolerance: FaultTolerance, cause: str) -> None:
        now = time.monotonic()
        self._failed_at.append(now)
        while self._failed_at[0] < now - tolerance.window_s:
            self._failed_at.popleft()
        if len(self._failed_at) > tolerance.max_failures:
            raise RunError(
                f"{len(self._failed_at)} workers failed within {now - self._failed_at[0]:.0f} s, "
                f"the last: {cause}"
            )

    def _suspect(self, tolerance: FaultTolerance, starts: list[int]) -> None:
        """Counts a failure for the start states of episodes that were at a step."""
        self._failures_of_start.update(starts)
        new = [
            start
            for start in starts
            if self._failures_of_start[start] >= tolerance.quarantine_after
            and start not in self.quarantined()
        ]
        if new:
            self.quarantine(new)
            self._say(f"start {some(new)} is quarantined")
