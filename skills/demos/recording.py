"""Recording of demonstrations: an actor acts in environments, a demonstrator labels its states."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from skills.core.interface import Demonstrator, SkillGoal, SkillPolicy, sensed
from skills.demos.disturbing import Disturbed, Hesitant
from skills.envs.batch import BatchStep, SkillBatch
from skills.envs.options import EnvOptions
from skills.policies.learned import LearnedPolicy, Network
from skills.spec import SkillSpec
from skills.starts.bank import StateAlong
from skills.starts.start import Start
from tpsrl.rl.envs.pictures import DEPTH, kind_of, pictures_of
from tpsrl.rl.imitation.dataset import Demonstration, quantised
from tpsrl.rl.policy import gaussian
from tpsrl.sim.base import Simulator
from tpsrl.world import action as act
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState

ENDS = SUCCESS, TIMEOUT, LOST = "success", "timeout", "lost"
_STREAM = 7  # separates the random streams of episodes from other streams of the seed
_LOST = 60  # consecutive invalid labels after which an episode is ended
DEMONSTRATOR, SCRIPTED = "demonstrator", "scripted"  # agents, beside checkpoints
_STATE_STEPS = 4  # interval in steps of the states that may be kept


@dataclasses.dataclass(frozen=True, slots=True)
class Actors:
    """Settings of the actor in recorded episodes.

    Without `student` the demonstrator acts. A share `disturbed` of its episodes has noise and
    lapses of a level drawn per episode, up to `noise` (standard deviation) and `lapses` (share of
    segments). Its switches of grip and stop are delayed by up to `hesitation` steps.

    With `student`, the file of a checkpoint, that policy acts. In a share `takeover` of the
    episodes the demonstrator takes over at a random step and acts until the end. Labels from before
    the takeover are valid only with `relabel`.
    """

    student: Path | None = None
    disturbed: float = 0.7
    noise: float = 0.3
    lapses: float = 0.3
    hesitation: int = 12
    takeover: float = 0.3
    relabel: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Recording:
    """A recorded episode: observations and labels, its number, and how it ended.

    `states` are the states kept from the episode, if any.
    """

    demonstration: Demonstration
    number: int
    ended_by: str
    states: tuple[StateAlong, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class RecordJob:
    """Episodes to record; each is determined by `seed` and its number, including its start."""

    numbers: tuple[int, ...]
    actors: Actors
    seed: int


@dataclasses.dataclass(frozen=True, slots=True)
class RecorderFactory:
    """Builds the recorder of a worker.

    Args:
        options: of the environments
        homes: number of environments
        agent: source of labels and actions: "demonstrator" is the skill's demonstrator, "scripted"
            its scripted version, anything else a checkpoint
        states: number of states kept per episode
        failed_by: file of a checkpoint; only those episodes of a job are recorded in which its
            policy fails
    """

    options: EnvOptions
    homes: int = 8
    agent: str = DEMONSTRATOR
    states: int = 0
    failed_by: Path | None = None

    def __call__(self) -> Callable[[RecordJob], list[Recording]]:
        """Returns the function that records the episodes of a job."""
        torch.set_num_threads(1)
        recorder = Recorder(self)
        return lambda job: list(recorder.record(job))


class Recorder:
    """Environments of one skill, each with its own demonstrator."""

    def __init__(self, factory: RecorderFactory) -> None:
        given, homes = factory.options, factory.homes
        options = dataclasses.replace(given, inputs=given.inputs.complete())
        self.inputs, self.homes = options.inputs, homes
        self._batch = SkillBatch(options, options.simulator(homes))
        self._source = options.source()
        self._failed_by = factory.failed_by
        self._seats = [
            _Seat(
                self._batch,
                home,
                make_demonstrator(self._batch.spec, factory.agent, self._batch, home),
                factory.states,
            )
            for home in range(homes)
        ]

    def record(self, job: RecordJob) -> Iterator[Recording]:
        """Yields the episodes of a job in the order in which they end."""
        todo = iter(job.numbers if self._failed_by is None else self._failed(job))
        student = None if job.actors.student is None else _Student(job.actors.student, self)
        busy = [seat for seat in self._seats if self._begin(seat, todo, job, student)]
        while busy:
            envs = [seat.home for seat in busy]
            labels = [seat.ask() for seat in busy]
            done = np.stack(labels)
            if student is not None:
                shown = [seat.shown for seat in busy]
                led = np.array([seat.led for seat in busy])
                done = np.where(led[:, None], student.act(envs, shown), done)
                student.did(envs, done)
                done = np.clip(done, -1.0, 1.0)
            for row, seat in enumerate(busy):
                if not seat.led:
                    done[row] = seat.hesitant(seat.disturbed(labels[row]), labels[row])
            step = self._batch.step(envs, done)
            for row, seat in enumerate(busy):
                seat.keep(step, row)
            for seat in [seat for seat in busy if seat.ended_by]:
                yield seat.recording()
                if not self._begin(seat, todo, job, student):
                    busy.remove(seat)

    def _failed(self, job: RecordJob) -> list[int]:
        """Returns the numbers of the episodes that the policy of `failed_by` fails.

        The policy has the skill's own horizon, independent of that of recorded episodes.
        """
        assert self._failed_by is not None
        failed, limit = list[int](), self._batch.spec.load_settings().horizon
        policy = _Student(self._failed_by, self)
        todo, running = iter(job.numbers), dict[int, int]()
        shown: dict[int, Mapping[str, np.ndarray]] = {}

        def begin(home: int) -> None:
            running.pop(home, None)
            for number in itertools.islice(todo, 1):
                start = self._start(job, number)[1]
                seen = self._batch.reset([home], [start])
                shown[home] = {name: values[0] for name, values in seen.items()}
                policy.begin(home)
                running[home] = number

        for home in range(self.homes):
            begin(home)
        while running:
            envs = list(running)
            done = policy.act(envs, [shown[home] for home in envs])
            policy.did(envs, done)
            step = self._batch.step(envs, np.clip(done, -1.0, 1.0))
            outcome = step.outcome
            for row, home in enumerate(envs):
                shown[home] = {name: values[row] for name, values in step.observation.items()}
                spent = self._batch.steps(home) >= limit
                if outcome.terminated[row] or outcome.truncated[row] or spent:
                    if not outcome.success[row]:
                        failed.append(running[home])
                    begin(home)
        return failed

    def _start(self, job: RecordJob, number: int) -> tuple[np.random.Generator, Start]:
        """Returns the generator and the start of an episode."""
        rng = np.random.default_rng((job.seed, number, _STREAM))
        return rng, self._source.draw(rng)[1]

    def _begin(
        self, seat: "_Seat", todo: Iterator[int], job: RecordJob, student: "_Student | None"
    ) -> bool:
        number = next(todo, None)
        if number is None:
            return False
        rng, start = self._start(job, number)
        seat.begin(number, start, job.actors, student is not None, rng)
        if student is not None:
            student.begin(seat.home)
        return True


class Acting:
    """Adapter of a policy to a demonstrator: its actions are the labels.

    A policy that calls stop without ending the episode has given up. Its later labels are invalid,
    and it is not queried again, because a scripted skill would search for a plan at every step.
    """

    def __init__(self, policy: SkillPolicy, simulator: Simulator, home: int) -> None:
        self._policy, self._simulator, self._home = policy, simulator, home
        self._last: np.ndarray | None = None

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.Demonstrator.begin`."""
        self._policy.begin(episode, goal, world)
        self._last = None

    def label(self, world: WorldState) -> tuple[np.ndarray, bool]:
        """See `skills.core.interface.Demonstrator.label`."""
        if self._last is not None:
            return self._last, False
        action = self._policy.act(world, *sensed(self._policy, self._simulator, self._home))
        if action[act.STOP] > 0.0:
            self._last = action
        return action, True


def make_demonstrator(spec: SkillSpec, agent: str, batch: SkillBatch, home: int) -> Demonstrator:
    """Makes the demonstrator of environment `home`; `agent` is that of `RecorderFactory`.

    Raises:
        UserError: the agent does not exist.
    """
    if agent == DEMONSTRATOR:
        return spec.make_demonstrator()
    policy: SkillPolicy = (
        spec.make_scripted() if agent == SCRIPTED else LearnedPolicy(spec.name, agent)
    )
    return Acting(policy, batch.simulator, home)


class _Seat:
    """One environment, its demonstrator, and the episode being recorded in it."""

    def __init__(
        self, batch: SkillBatch, home: int, demonstrator: Demonstrator, states: int
    ) -> None:
        self._batch, self.home, self._demonstrator = batch, home, demonstrator
        self._count = states

    def begin(
        self, number: int, start: Start, actors: Actors, student: bool, rng: np.random.Generator
    ) -> None:
        """Starts an episode and draws its disturbances and takeover."""
        self.number, self.ended_by = number, ""
        self.shown = {k: v[0] for k, v in self._batch.reset([self.home], [start]).items()}
        self._demonstrator.begin(start.episode, start.goal, self._batch.world(self.home))
        level = rng.random() if rng.random() < actors.disturbed else 0.0
        self.disturbed = Disturbed(rng, level * actors.noise, level * actors.lapses)
        self.hesitant = Hesitant(rng, actors.hesitation)
        horizon = self._batch.settings.horizon
        taken_over = not student or rng.random() < actors.takeover
        self._takeover = int(rng.integers(0, max(horizon // 2, 1))) if taken_over else horizon
        if not student:
            self._takeover = 0
        elif taken_over:
            self.disturbed = Disturbed(rng, 0.0, 0.0)
        self._seen: dict[str, list[np.ndarray]] = {name: [] for name in self.shown}
        self._labels: list[np.ndarray] = []
        self._valid: list[bool] = []
        self._actions: list[np.ndarray] = []
        self._lost = 0
        self._relabel = actors.relabel
        self._goal, self._states = start.goal, list[StateAlong]()
        self._rng = rng

    @property
    def led(self) -> bool:
        """Whether the student acts in the current step."""
        return len(self._actions) < self._takeover

    def ask(self) -> np.ndarray:
        """Records the current observation and label; returns the label (11,)."""
        step = len(self._actions)
        if self._count and step and step % _STATE_STEPS == 0:
            found = self._batch.snapshot(self.home)
            name = self._batch.spec.name
            state = StateAlong.of(name, self._goal, found.home, found.task, step)
            self._states.append(state)
        label, valid = self._demonstrator.label(self._batch.world(self.home))
        self._labels.append(label.astype(np.float32))
        self._valid.append(valid and (self._relabel or not self.led))
        self._lost = 0 if valid else self._lost + 1
        for name, values in self.shown.items():
            self._seen[name].append(quantised(values) if kind_of(name) == DEPTH else values)
        return np.array(label, np.float64)

    def keep(self, step: BatchStep, row: int) -> None:
        """Records the action, next observation and outcome of a step."""
        outcome = step.outcome
        self._actions.append(step.actions[row].astype(np.float32))
        self.shown = {name: values[row] for name, values in step.observation.items()}
        if outcome.success[row]:
            self.ended_by = SUCCESS
        elif outcome.terminated[row]:
            self.ended_by = self._batch.skill.failures[int(outcome.failure[row])]
        elif outcome.truncated[row]:
            self.ended_by = TIMEOUT
        elif self._lost >= _LOST:
            self.ended_by = LOST

    def recording(self) -> Recording:
        """Returns the finished episode."""
        seen = {name: np.stack(values) for name, values in self._seen.items()}
        demonstration = Demonstration(
            seen, np.stack(self._labels), np.array(self._valid), np.stack(self._actions)
        )
        kept = min(self._count, len(self._states))
        rows = np.sort(self._rng.choice(len(self._states), kept, replace=False)) if kept else ()
        states = tuple(self._states[row] for row in rows)
        return Recording(demonstration, self.number, self.ended_by, states)


class _Student:
    """The policy of a checkpoint in the environments of a recorder."""

    def __init__(self, path: Path, recorder: Recorder) -> None:
        network, homes = _load(path, path.stat().st_mtime_ns), recorder.homes
        self._policy = network.policy
        self._columns = recorder.inputs.places(network.inputs)
        self._memory = self._policy.initial_memory(homes)
        self._previous = torch.zeros(homes, act.SIZE)
        self._first = torch.ones(homes, dtype=torch.bool)
        self._generator = torch.Generator().manual_seed(0)

    def begin(self, home: int) -> None:
        """Starts an episode in environment `home`."""
        self._first[home] = True

    def act(self, envs: Sequence[int], seen: Sequence[Mapping[str, np.ndarray]]) -> np.ndarray:
        """Samples actions (m, 11) for the observations `seen` of m environments."""
        rows = torch.tensor(envs)
        shown = {"state": np.stack([one["state"][self._columns] for one in seen])}
        for name in pictures_of(self._policy.spec.observations):
            shown[name] = np.stack([one[name] for one in seen])
        inputs = self._previous[rows], self._memory[rows], self._first[rows]
        with torch.inference_mode():
            step = self._policy.act({n: torch.from_numpy(v) for n, v in shown.items()}, *inputs)
            drawn = gaussian.sample(step.mean, step.std, self._policy.mask, self._generator)
        assert step.memory is not None
        self._memory[rows], self._first[rows] = step.memory.clone(), False
        return drawn.numpy().astype(np.float64)

    def did(self, envs: Sequence[int], actions: np.ndarray) -> None:
        """Sets the executed actions (m, 11), which are the policy's next previous actions."""
        self._previous[torch.tensor(envs)] = torch.from_numpy(actions.astype(np.float32))


@functools.lru_cache(maxsize=1)
def _load(path: Path, changed_ns: int) -> Network:
    """Loads the network of a checkpoint; `changed_ns` is part of the cache's key."""
    return Network(path)
