"""All environments of a run, any of which are stepped: what collectors drive.

Here is the interface, and the environments of one process; those of worker processes are in
`tpsrl.rl.envs.workers`.
"""

import dataclasses
import time
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from tpsrl.errors import UserError
from tpsrl.rl.collection.stopwatch import Stopwatch
from tpsrl.rl.envs.buffers import (
    ANSWERED,
    ASKED,
    IDLE,
    Answers,
    check_finite,
    episodes_from_json,
    episodes_to_json,
)
from tpsrl.rl.envs.interface import EnvSpec, Episode, HomesFactory, Json, Observation, StepBatch

CAUSES = ("simulation", "rendering", "resets")  # what environments spend time on

Snapshot = tuple[dict[str, np.ndarray], Json]  # arrays, JSON types

# The serial scheduler's clock: a step takes 1 on average, and between two looks passes this much.
_LOOK = 0.1
_SPREAD = 0.5  # deviation of the logarithm of a step's time


@dataclasses.dataclass(frozen=True, slots=True)
class Loss:
    """Environments (m,) that were lost with their process, in the middle of episodes.

    `starts` (m,) are the numbers of the starts of these episodes, `cause` is for people.
    """

    envs: np.ndarray
    starts: tuple[int, ...]
    cause: str


class Environments(Protocol):
    """Environments 0 to `num_envs` - 1, in this process or in others.

    `observation` (num_envs, ...) by name is what they show now; it is written over when they
    move, so what is to be kept has to be copied.
    """

    num_envs: int
    spec: EnvSpec
    observation: Observation

    def reset(self) -> None:
        """Begins a new episode in each."""
        ...

    def idle(self) -> np.ndarray:
        """Environments (m,) that can be asked, whose answers were fetched; longest idle first."""
        ...

    def ask(self, envs: np.ndarray, actions: np.ndarray) -> None:
        """Starts a step of environments (m,) under actions (m, A)."""
        ...

    def poll(self, at_least: int = 0, held: int = 0) -> np.ndarray:
        """Environments whose answers can be fetched (m,), the oldest answer first.

        Waits until there are `at_least` so many, unless fewer are at a step, or something else
        has to be attended to: a loss, an environment that can be asked again after one, or `wake`.
        `held` so many are with somebody who will call `wake`.

        Raises:
            RunError: an environment failed, or its process died, and that is not survived.
        """
        ...

    def wake(self) -> None:
        """Ends the present wait of `poll`, or else its next one; for any thread to call."""
        ...

    def collect(self, envs: np.ndarray) -> StepBatch:
        """The answers of environments (m,) that `poll` gave; they are idle then."""
        ...

    def took_s(self, envs: np.ndarray) -> np.ndarray:
        """Seconds (m,) that the last steps of environments took, resets included."""
        ...

    def answered_at(self, envs: np.ndarray) -> np.ndarray:
        """When the last answers of environments came (m,), by `time.monotonic`."""
        ...

    def losses(self) -> list[Loss]:
        """What was lost since this was last asked; its environments are idle sooner or later."""
        ...

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by `CAUSES` so far, of the processes' mean."""
        ...

    def snapshot(self) -> Snapshot:
        """All environments, frozen, with answers that were not fetched; waits for those to come.

        Going on from here gives the same as going on from a restored one, in whatever processes.
        """
        ...

    def restore(self, arrays: Mapping[str, np.ndarray], note: Json) -> None:
        """Puts every environment into its frozen state.

        Raises:
            UserError: the snapshot does not fit.
        """
        ...

    def close(self) -> None:
        """Ends processes and frees memory; safe to call twice."""
        ...


def by_cause(stepping: float, parts: Mapping[str, float]) -> dict[str, float]:
    """`CAUSES` of the seconds that homes took, given what they say of `Homes.seconds`."""
    rest = stepping - sum(parts.values())
    return {cause: parts.get(cause, rest if cause == CAUSES[0] else 0.0) for cause in CAUSES}


def step_all(environments: Environments, actions: np.ndarray) -> StepBatch:
    """One step of all environments, none of which is at one, under actions (num_envs, A)."""
    envs = np.arange(environments.num_envs)
    environments.ask(envs, actions)
    while len(environments.poll(len(envs))) < len(envs):
        pass
    return environments.collect(envs)


class Serial:
    """`Environments` in the calling process.

    They step when they are asked, and a scheduler of its own, seeded, says when the answers come:
    each step takes a log-normal time of a clock that is not real. So a collector that waits for
    nobody goes through an interleaving that is random and the same every time.
    """

    def __init__(self, factory: HomesFactory, num_envs: int, seed: int = 0) -> None:
        self._homes = factory(range(num_envs))
        self.num_envs, self.spec = num_envs, self._homes.spec
        self._answers = Answers.blank(self.spec, num_envs)
        self.observation = self._answers.observation
        self._episodes: list[Episode] = []
        self._all = list(range(num_envs))
        self._rng = np.random.default_rng((seed, num_envs))
        self._clock = 0.0
        self._stepping = Stopwatch()

    @property
    def seconds(self) -> dict[str, float]:
        """See `Environments.seconds`."""
        return by_cause(self._stepping.seconds, self._homes.seconds)

    def reset(self) -> None:
        """See `Environments.reset`."""
        with self._stepping:
            shown = self._homes.reset(self._all)
        check_finite(self._all, [self._homes.start(env) for env in self._all], shown)
        self._answers.show(slice(None), shown)

    def idle(self) -> np.ndarray:
        """See `Environments.idle`."""
        return self._answers.idle()

    def ask(self, envs: np.ndarray, actions: np.ndarray) -> None:
        """See `Environments.ask`."""
        before = self._stepping.seconds
        starts = [self._homes.start(env) for env in envs.tolist()]
        with self._stepping:
            done = self._homes.step(envs.tolist(), np.asarray(actions))
        check_finite(envs.tolist(), starts, {**done.observation, "reward": done.reward})
        answers = self._answers
        answers.put(envs, done)
        self._episodes += done.episodes
        answers.took_s[envs] = self._stepping.seconds - before
        answers.answered_at[envs] = self._clock + self._rng.lognormal(0.0, _SPREAD, len(envs))
        answers.state[envs] = ASKED

    def wake(self) -> None:
        """See `Environments.wake`; nothing waits here."""

    def poll(self, at_least: int = 0, held: int = 0) -> np.ndarray:
        """See `Environments.poll`."""
        answers = self._answers
        under_way = np.flatnonzero(answers.state == ASKED)
        if len(under_way):
            missing = at_least - int((answers.state == ANSWERED).sum())
            due = np.sort(answers.answered_at[under_way])
            self._clock += _LOOK
            if missing > 0:
                self._clock = max(self._clock, due[min(missing, len(due)) - 1])
            come = under_way[answers.answered_at[under_way] <= self._clock]
            answers.state[come] = ANSWERED
        return answers.waiting()

    def collect(self, envs: np.ndarray) -> StepBatch:
        """See `Environments.collect`."""
        done = self._answers.take(envs)
        self._answers.state[envs] = IDLE
        over = envs[done.terminated | done.truncated]
        done.episodes, self._episodes = split_episodes(self._episodes, over)
        return done

    def took_s(self, envs: np.ndarray) -> np.ndarray:
        """See `Environments.took_s`."""
        return self._answers.took_s[envs]

    def answered_at(self, envs: np.ndarray) -> np.ndarray:
        """See `Environments.answered_at`; they come when they are looked for."""
        return np.full(len(envs), time.monotonic())

    def losses(self) -> list[Loss]:
        """Always []: an error here is the caller's."""
        return []

    def snapshot(self) -> Snapshot:
        """See `Environments.snapshot`."""
        arrays = named("answers", self._answers.to_arrays())
        notes = []
        for env in self._all:
            parts, about = self._homes.snapshot(env)
            arrays |= named(str(env), parts)
            notes.append(about)
        note = {
            "environments": notes,
            "episodes": episodes_to_json(self._episodes),
            "lost": [],
            "clock": self._clock,
            "scheduler": self._rng.bit_generator.state,
        }
        return arrays, note

    def restore(self, arrays: Mapping[str, np.ndarray], note: Json) -> None:
        """See `Environments.restore`."""
        answers, homes, episodes = unpacked(arrays, note, self.num_envs)
        if note.get("lost"):
            raise UserError("snapshot: environments were being replaced; resume it with workers")
        for env, (parts, about) in enumerate(homes):
            self._homes.restore(env, parts, about)
        self._answers.load(answers)
        self._answers.show(slice(None), self._homes.observe(self._all))
        self._homes.avoid(note.get("quarantine", []))
        self._episodes = episodes
        self._clock = float(note.get("clock", self._answers.answered_at.max()))
        if "scheduler" in note:
            self._rng.bit_generator.state = note["scheduler"]

    def close(self) -> None:
        """See `Environments.close`."""
        self._homes.close()


def split_episodes(
    episodes: list[Episode], over: np.ndarray
) -> tuple[list[Episode], list[Episode]]:
    """Those of the environments in `over`, in their order, and the rest."""
    if not len(over):
        return [], episodes
    wanted = {int(env): place for place, env in enumerate(over)}
    found = [episode for episode in episodes if episode.env in wanted]
    rest = [episode for episode in episodes if episode.env not in wanted]
    return sorted(found, key=lambda episode: wanted[episode.env]), rest


def named(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays under longer names."""
    return {f"{prefix}/{name}": values for name, values in arrays.items()}


def unpacked(
    arrays: Mapping[str, np.ndarray], note: Json, num_envs: int
) -> tuple[dict[str, np.ndarray], list[Snapshot], list[Episode]]:
    """A snapshot's answers, the snapshot of each environment, and episodes not yet fetched.

    Raises:
        UserError: it is none, or of another number of environments.
    """
    notes = note.get("environments")
    if not isinstance(notes, list):
        raise UserError("snapshot: not one of environments")
    if len(notes) != num_envs:
        raise UserError(f"snapshot: of {len(notes)} environments, here are {num_envs}")
    answers: dict[str, np.ndarray] = {}
    parts: list[dict[str, np.ndarray]] = [{} for _ in notes]
    try:
        for key, values in arrays.items():
            where, _, name = key.partition("/")
            (answers if where == "answers" else parts[int(where)])[name] = values
    except (ValueError, IndexError) as error:
        raise UserError(f"snapshot: not one of environments ({error!r})") from None
    episodes = episodes_from_json(note.get("episodes", []))
    return answers, list(zip(parts, notes, strict=True)), episodes
