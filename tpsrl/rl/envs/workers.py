"""Environment worker processes: several homes each, observations and actions in shared memory.

A step of a worker costs, whatever the number of its homes: one signal each way (`shared.Signals`:
at most a system call to send and one to sleep), and one copy of each observation, from the homes
into shared memory; the collector copies it into the batch that the policy acts on, and from there
into the rollout.
Episodes that ended, commands and their answers travel over a pipe.

A worker that dies, hangs, or reports an error is replaced by another if `Survival` allows it.
"""

import atexit
import collections
import contextlib
import dataclasses
import multiprocessing.util  # noqa: F401 (its hook at exit has to be registered before ours)
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import wait
from typing import Any

import numpy as np

from tpsrl.errors import RunError, UserError
from tpsrl.rl.envs.buffers import (
    ANSWERED,
    ASKED,
    IDLE,
    STARTING,
    Answers,
    episodes_to_json,
)
from tpsrl.rl.envs.interface import EnvSpec, Episode, HomesFactory, Json, Observation, StepBatch
from tpsrl.rl.envs.serial import CAUSES, Loss, Snapshot, named, split_episodes, unpacked
from tpsrl.rl.envs.shared import Layout, SharedArrays, Signals
from tpsrl.rl.envs.worker import MOST_AVOIDED, READY, SLICE_S
from tpsrl.rl.envs.worker_processes import Worker, bury, obituary, start

_PATIENCE_S = 5.0  # for workers to end by themselves
_FEW = 4  # starts that a message names
_START_SLICE_S = 0.05  # a new worker cannot signal before it has been handed its memory


@dataclasses.dataclass(frozen=True, slots=True)
class Survival:
    """What is done about workers that fail.

    One that has been at a step, or at its start, for `hang_s` seconds is ended. More than
    `max_failures` failures within `window_s` seconds end everything. A start during which
    `quarantine_after` workers failed is not drawn again.
    """

    hang_s: float = 120.0
    max_failures: int = 10
    window_s: float = 600.0
    quarantine_after: int = 2
    warn_s: float = 10.0


class Workers:
    """`tpsrl.rl.envs.serial.Environments` in worker processes, each with a block of them.

    A worker steps together what it was asked for since it last looked. Every worker ends when this
    process does.

    Args:
        factory: of the environments
        num_envs: how many
        processes: how many workers have them
        survival: of workers that fail; None: their failure is the caller's
        say: is told what goes wrong and who waits for whom

    Raises:
        UserError: one that the factory raised.
        RunError: a worker failed or died, with the cause.
    """

    def __init__(
        self,
        factory: HomesFactory,
        num_envs: int,
        processes: int,
        survival: Survival | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        if not 1 <= processes <= num_envs:
            raise UserError(
                f"processes: {processes} is out of range, must be between 1 and the "
                f"{num_envs} environments"
            )
        self.num_envs = num_envs
        self.observation: Observation = {}
        self._factory, self._survival, self._say = factory, survival, say
        self._workers: list[Worker] = []
        blocks = np.array_split(np.arange(num_envs), processes)
        self._owner = np.repeat(np.arange(processes), [len(envs) for envs in blocks])
        self._asked_at = np.zeros(num_envs)
        self._episodes: list[Episode] = []
        self._losses: list[Loss] = []
        self._failures: collections.deque[float] = collections.deque()
        self._blamed: collections.Counter[int] = collections.Counter()
        self._looked = self._warned = 0.0
        self._starting = 0  # environments without a process, when last looked
        self._woken = False
        self._shared: SharedArrays | None = None
        _open.add(self)
        try:
            for number, envs in enumerate(blocks):
                self._workers.append(start(factory, number, envs))
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
        self._board: Answers | None = Answers(self.spec, shared)
        for worker in self._workers:
            with self._watched(worker):
                shared.send(worker.pipe, worker.process.pid or 0)
        self.observation = self._answers.observation

    # -- steps ---------------------------------------------------------------------------------

    def idle(self) -> np.ndarray:
        """See `tpsrl.rl.envs.serial.Environments.idle`."""
        return self._answers.idle()

    def ask(self, envs: np.ndarray, actions: np.ndarray) -> None:
        """See `tpsrl.rl.envs.serial.Environments.ask`."""
        answers = self._answers
        answers.actions[envs] = actions
        self._asked_at[envs] = time.monotonic()
        answers.state[envs] = ASKED
        for number in dict.fromkeys(self._owner[envs].tolist()):
            self._signals.send(number + 1)

    def wake(self) -> None:
        """See `tpsrl.rl.envs.serial.Environments.wake`."""
        self._woken = True
        if self._shared is not None:
            self._signals.send(READY)

    def poll(self, at_least: int = 0, held: int = 0) -> np.ndarray:
        """See `tpsrl.rl.envs.serial.Environments.poll`."""
        answers = self._answers
        while True:
            # What was signalled until here is seen below; without this the count would grow.
            self._signals.drain(READY)
            self._look_after()
            count = np.bincount(answers.state, minlength=STARTING + 1)
            begun, self._starting = count[STARTING] < self._starting, int(count[STARTING])
            expected = count[ASKED] + count[STARTING] + held
            ended = not expected or begun or self._losses or self._woken
            if count[ANSWERED] >= at_least or ended:
                self._woken = False
                return answers.waiting()
            self._signals.receive(READY, _START_SLICE_S if self._starting else SLICE_S)

    def collect(self, envs: np.ndarray) -> StepBatch:
        """See `tpsrl.rl.envs.serial.Environments.collect`."""
        done = self._answers.take(envs)
        self._answers.state[envs] = IDLE
        over = envs[done.terminated | done.truncated]
        if len(over):
            self._fetch_episodes(over)
            done.episodes, self._episodes = split_episodes(self._episodes, over)
        return done

    def took_s(self, envs: np.ndarray) -> np.ndarray:
        """See `tpsrl.rl.envs.serial.Environments.took_s`."""
        return self._answers.took_s[envs]

    def answered_at(self, envs: np.ndarray) -> np.ndarray:
        """See `tpsrl.rl.envs.serial.Environments.answered_at`."""
        return self._answers.answered_at[envs]

    def _fetch_episodes(self, envs: np.ndarray) -> None:
        """Reads the messages about episodes that the workers of these environments sent."""
        letters = self._array("letters")
        for number in np.unique(self._owner[envs]):
            worker = self._workers[number]
            while worker.letters < letters[number]:
                self._episodes += self._read(worker)
                worker.letters += 1

    # -- everything else -----------------------------------------------------------------------

    @property
    def seconds(self) -> dict[str, float]:
        """See `tpsrl.rl.envs.serial.Environments.seconds`."""
        return dict(zip(CAUSES, self._array("seconds").mean(axis=0).tolist(), strict=True))

    def reset(self) -> None:
        """See `tpsrl.rl.envs.serial.Environments.reset`."""
        self._command("reset", [None for _ in self._workers])

    def snapshot(self) -> Snapshot:
        """See `tpsrl.rl.envs.serial.Environments.snapshot`."""
        while True:
            self._settle()
            try:
                answers = self._command("snapshot", [None for _ in self._workers])
                break
            except _WorkerFailed as failure:
                self._lose(failure.worker, str(failure))
        board = self._answers
        self._fetch_episodes(np.arange(self.num_envs))
        arrays = named("answers", board.to_arrays())
        notes: list[Json] = []
        for parts, about in (frozen for answer in answers for frozen in answer):
            arrays |= named(str(len(notes)), parts)
            notes.append(about)
        note = {
            "environments": notes,
            "episodes": episodes_to_json(self._episodes),
            "lost": [[loss.envs.tolist(), list(loss.starts), loss.cause] for loss in self._losses],
            "quarantine": self._avoided().tolist(),
        }
        return arrays, note

    def restore(self, arrays: Mapping[str, np.ndarray], note: Json) -> None:
        """See `tpsrl.rl.envs.serial.Environments.restore`."""
        answers, homes, episodes = unpacked(arrays, note, self.num_envs)
        self._command("restore", [[homes[e] for e in worker.envs] for worker in self._workers])
        board = self._answers
        if "state" in answers:
            # Steps that were under way have their answers with them. A worker must not see them as
            # asked even for a moment: it would take that step again.
            state = answers["state"]
            answers["state"] = np.where(state == ASKED, ANSWERED, state)
        board.load(answers)
        # What answers after this has to count as younger.
        board.answered_at -= board.answered_at.max()
        self._episodes = episodes
        self._losses = [
            Loss(np.array(envs), tuple(starts), cause)
            for envs, starts, cause in note.get("lost", [])
        ]
        self._avoid(note.get("quarantine", []))

    def close(self) -> None:
        """See `tpsrl.rl.envs.serial.Environments.close`."""
        _open.discard(self)
        shared, self._shared = self._shared, None
        if shared is not None:
            shared["closing"][:] = True
            for worker in self._workers:
                self._signals.send(worker.number + 1)
        end = time.monotonic() + (_PATIENCE_S if shared is not None else 0.0)
        for worker in self._workers:
            if not worker.begun:  # It has not been told of the shared memory yet.
                worker.process.kill()
            worker.process.join(max(end - time.monotonic(), 0.0))
            bury(worker)
        self._workers = []
        if shared is not None:
            self.observation, self._board = {}, None
            shared.close()

    @property
    def _answers(self) -> Answers:
        if self._shared is None or self._board is None:
            raise RunError("worker processes: they were closed")
        return self._board

    def _array(self, name: str) -> np.ndarray:
        if self._shared is None:
            raise RunError("worker processes: they were closed")
        return self._shared[name]

    def _command(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        """Has every worker do something beside its steps; their answers."""
        sent: list[Worker] = []
        trouble: Exception | None = None
        for worker, given in zip(self._workers, arguments, strict=True):
            try:
                self._send(worker, name, given)
                sent.append(worker)
            except RunError as error:
                trouble = trouble or error
        answers = []
        for worker in sent:  # nobody's answer must stay in its pipe
            try:
                answers.append(self._answer(worker))
            except (UserError, RunError) as error:
                trouble = trouble or error
        if trouble is not None:
            raise trouble
        return answers

    def _answer(self, worker: Worker) -> Any:
        """A worker's answer to a command; what it says of episodes before is kept."""
        while True:
            letters = self._array("letters")[worker.number]
            value = self._read(worker)
            if worker.letters == letters:
                return value
            self._episodes += value
            worker.letters += 1

    def _read(self, worker: Worker) -> Any:
        """The next message of a worker, which may yet be about to send it."""
        wait([worker.pipe, worker.process.sentinel])
        with self._watched(worker):
            if not worker.pipe.poll():
                raise EOFError
            kind, value = worker.pipe.recv()
        if kind == "user error":
            raise UserError(value)
        if kind == "run error":
            raise _WorkerFailed(worker, value)
        if kind == "error":
            last = value.strip().splitlines()[-1]
            failure = _WorkerFailed(worker, f"{worker.name} failed: {last}")
            failure.add_note(value)
            raise failure
        return value

    @contextlib.contextmanager
    def _watched(self, worker: Worker) -> Iterator[None]:
        """Turns a broken pipe into the news that a worker died."""
        try:
            yield
        except (EOFError, ConnectionError, BrokenPipeError):
            raise _WorkerFailed(worker, obituary(worker)) from None

    # -- failures ------------------------------------------------------------------------------

    def losses(self) -> list[Loss]:
        """See `tpsrl.rl.envs.serial.Environments.losses`."""
        found, self._losses = self._losses, []
        return found

    def _look_after(self) -> None:
        """Replaces workers that failed; once a second it looks whether all live and none hangs."""
        if self._starting:
            self._greet()
        failed = self._array("failed")
        for number in np.flatnonzero(failed).tolist():
            worker = self._workers[number]
            try:
                while True:  # episodes first, then the error
                    self._episodes += self._read(worker)
                    worker.letters += 1
            except _WorkerFailed as failure:
                self._fail(failure)
        now = time.monotonic()
        if now - self._looked < SLICE_S:
            return
        self._looked = now
        for worker in list(self._workers):
            if worker.process.exitcode is not None:
                self._fail(_WorkerFailed(worker, obituary(worker)))
        self._watch(now)

    def _watch(self, now: float) -> None:
        """Says who is waited for for long, and ends who hangs."""
        state = self._answers.state
        for worker in list(self._workers):
            own = state[worker.envs]
            if (own == STARTING).any():
                since, what = worker.since, "its start"
            elif (own == ASKED).any():
                envs = worker.envs[own == ASKED]
                since = float(self._asked_at[envs].min())
                starts = np.unique(self._array("start")[envs])
                what = f"a step (start {_some(starts)})"
            else:
                continue
            survival = self._survival or _WATCH_ONLY
            if now - since > survival.hang_s and self._survival is not None:
                worker.process.kill()
                cause = f"{worker.name} hung: {now - since:.0f} s at {what}"
                self._fail(_WorkerFailed(worker, cause))
            elif now - since > survival.warn_s and now - self._warned > survival.warn_s:
                self._warned = now
                self._say(f"waiting for {worker.name}, {now - since:.0f} s at {what}")

    def _fail(self, failure: "_WorkerFailed") -> None:
        """Raises a failure, or survives it."""
        if self._survival is None:
            raise failure
        self._lose(failure.worker, str(failure))

    def _lose(self, worker: Worker, cause: str) -> None:
        """Notes what was lost with a worker, and starts another in its place.

        Raises:
            RunError: too many have failed, or none may.
        """
        survival = self._survival
        if survival is None:
            raise RunError(cause)
        now = time.monotonic()
        self._failures.append(now)
        while self._failures[0] < now - survival.window_s:
            self._failures.popleft()
        if len(self._failures) > survival.max_failures:
            raise RunError(
                f"{len(self._failures)} workers failed within {now - self._failures[0]:.0f} s, "
                f"the last: {cause}"
            )
        envs, state = worker.envs, self._answers.state
        starts = self._array("start")
        at_step = envs[state[envs] == ASKED]
        self._losses.append(Loss(envs, tuple(starts[envs].tolist()), cause))
        self._say(f"{cause}; start {_some(starts[envs])}; it is replaced")
        self._blame(np.unique(starts[at_step]).tolist())
        worker.process.kill()
        worker.process.join()
        bury(worker)
        self._array("failed")[worker.number] = self._array("mail")[worker.number] = False
        self._array("letters")[worker.number] = 0
        state[envs] = STARTING
        self._starting += len(envs)
        self._episodes = [e for e in self._episodes if e.env not in envs]
        new = start(self._factory, worker.number, envs, worker.life + 1)
        new.begun, new.since = False, now
        self._workers[worker.number] = new

    def _blame(self, starts: list[int]) -> None:
        """Counts a failure against the starts that were at a step."""
        assert self._survival is not None
        self._blamed.update(starts)
        new = [
            start
            for start in starts
            if self._blamed[start] >= self._survival.quarantine_after
            and start not in self._avoided()
        ]
        if new:
            self._avoid(new)
            self._say(f"start {_some(new)} is not drawn any more")

    def _avoided(self) -> np.ndarray:
        """Starts that are not drawn any more (k,)."""
        avoided = self._array("avoided")
        return avoided[1 : 1 + avoided[0]]

    def _avoid(self, starts: list[int]) -> None:
        """Starts that workers are to draw no more, from their next step on."""
        avoided = self._array("avoided")
        end = 1 + int(avoided[0])
        starts = starts[: MOST_AVOIDED + 1 - end]
        avoided[end : end + len(starts)] = starts
        avoided[0] += len(starts)

    def _greet(self) -> None:
        """Hands the shared memory to new workers that have made their homes."""
        assert self._shared is not None
        for worker in list(self._workers):
            if worker.begun or not worker.pipe.poll():
                continue
            try:
                self._read(worker)
                with self._watched(worker):
                    self._shared.send(worker.pipe, worker.process.pid or 0)
                self._send(worker, "begin", None)
                worker.begun = True
            except _WorkerFailed as failure:
                self._fail(failure)

    def _send(self, worker: Worker, name: str, given: Any) -> None:
        """Sends a command."""
        self._array("mail")[worker.number] = True
        self._signals.send(worker.number + 1)
        with self._watched(worker):
            worker.pipe.send((name, given))

    def _settle(self) -> None:
        """Waits until no environment is at a step or without a process."""
        losses: list[Loss] = []
        while np.isin(self._answers.state, (ASKED, STARTING)).any():
            losses += self.losses()  # a poll would return at once while there are some
            self.poll(self.num_envs)
        self._losses = losses + self._losses


class _WorkerFailed(RunError):
    """A worker failed, died or hung."""

    def __init__(self, worker: Worker, message: str) -> None:
        super().__init__(message)
        self.worker = worker


_WATCH_ONLY = Survival()


def _layout(spec: EnvSpec, num_envs: int, processes: int) -> Layout:
    layout: dict[str, Any] = {
        "signals": Signals.layout(processes + 1),
        "closing": ((1,), bool),
        "mail": ((processes,), bool),  # a command waits in the pipe
        "failed": ((processes,), bool),  # an error waits in the pipe
        "letters": ((processes,), np.int64),  # how many messages about episodes were sent
        "seconds": ((processes, len(CAUSES)), np.float64),
        "start": ((num_envs,), np.int64),  # of the episode that each environment is in
        "avoided": ((1 + MOST_AVOIDED,), np.int64),  # how many starts, and these
    }
    return layout | dict(Answers.layout(spec, num_envs))


def _some(numbers: Sequence[int] | np.ndarray) -> str:
    """The first few."""
    rest = f" and {len(numbers) - _FEW} others" if len(numbers) > _FEW else ""
    return ", ".join(map(str, numbers[:_FEW])) + rest


# Processes that are left open when the interpreter ends would be waited for, for ever.
_open: "weakref.WeakSet[Workers]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for workers in list(_open):
        workers.close()
