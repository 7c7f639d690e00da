"""Quality of demonstrators: share of valid labels, speed, and success rate.

    python -m benchmarks.demonstrators SKILL [states=100000]
        [policy=random|drifting|told] [num_objects=12] [seed=0] [takeovers=100] [out=FOLDER]

The demonstrator is the skill's (`skills.spec.SkillSpec.demonstrator`).

A learner acts in the skill's environment, and the demonstrator labels every state that it reaches.
The learner's policies are:

- random: random actions, each repeated for several steps; episodes continue after failures.
- drifting: half trained. The demonstrator's action, disturbed by much noise and many lapses
  (`skills.demos.disturbing.Disturbed`).
- told: the demonstrator's own actions.

With "drifting" the demonstrator also takes over at a random step of an episode and acts for up to
the length of a whole episode. Its successes are compared with those that it has alone from the same
starts. Starts whose episode ends before the takeover are drawn again.

Times are CPU times of this process in calls of `label` alone.
"""

import collections
import dataclasses
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from skills import registry
from skills.core.interface import SkillGoal
from skills.demos.disturbing import Disturbed
from skills.envs.environment import SkillEnv
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.runtime import files
from tpsrl.world import action as act
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState

EPISODE_STEPS = 200  # with a random learner
LATEST_STEP = 100  # the demonstrator takes over before this step
LONGEST_ACTION = 20  # steps with the same random action
NOISE, LAPSES = 0.3, 0.35  # of a drifting learner
LOST = 60  # consecutive invalid labels after which the episode ends
REDRAWS = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the benchmark."""

    states: int = config.option(100_000, "in which the demonstrator is asked", minimum=0)
    policy: Literal["random", "drifting", "told"] = config.option("drifting", "who acts")
    num_objects: int = config.option(12, "in a home", minimum=1)
    num_episodes: int = config.option(32, "base episodes", minimum=1)
    takeovers: int = config.option(100, "by the demonstrator, of a drifting learner", minimum=0)
    seed: int = config.option(0, "of starts and learner")
    out: str = config.option("", "folder for demonstrator.json; none is written without")


class Asked:
    """Demonstrator with counters of its labels, times and errors."""

    def __init__(self, skill: str) -> None:
        self.skill, spec = skill, registry.get(skill)
        self.states = self.valid = 0
        self.seconds = self.slowest = 0.0
        self.errors: collections.Counter[str] = collections.Counter()
        self.notes: collections.Counter[str] = collections.Counter()
        self._demonstrator: Any = spec.make_demonstrator()
        self.reset()

    def reset(self) -> None:
        """Resets the counters."""
        self.states = self.valid = 0
        self.seconds = self.slowest = 0.0
        self.errors.clear()
        self.notes.clear()

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `Demonstrator.begin`."""
        self._demonstrator.begin(episode, goal, world)

    def end(self) -> None:
        """Counts the demonstrator's diagnosis of the episode."""
        self.notes.update(
            {k: v for k, v in self._demonstrator.diagnosis().items() if isinstance(v, int)}
        )

    def label(self, world: WorldState) -> tuple[np.ndarray, bool]:
        """See `Demonstrator.label`; counts exceptions, which give an invalid label."""
        begun = time.process_time()
        try:
            action, valid = self._demonstrator.label(world)
        except Exception:
            self.errors[traceback.format_exc(limit=-3)] += 1
            action, valid = np.zeros(act.SIZE), False
        spent = time.process_time() - begun
        self.seconds += spent
        self.slowest = max(self.slowest, spent)
        if action.shape != (act.SIZE,) or not np.all(np.abs(action) <= 1.0 + 1e-9):
            self.errors[f"no action: {action}"] += 1
            action = np.zeros(act.SIZE)
        self.states += 1
        self.valid += valid
        return action, valid


# Maps the demonstrator's action (11,) to the learner's.
Learner = Callable[[np.ndarray], np.ndarray]


class Random:
    """Uniform actions, each repeated for 1 to `LONGEST_ACTION` steps."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng, self._left = rng, 0
        self._action = np.zeros(act.SIZE)
        # With random suction, an object would be held in few states.
        self._keeps_grip = rng.random() < 0.5

    def __call__(self, expert: np.ndarray) -> np.ndarray:
        """See `Learner`."""
        if self._left == 0:
            self._left = int(self._rng.integers(1, LONGEST_ACTION + 1))
            self._action = self._rng.uniform(-1.0, 1.0, act.SIZE)
        self._left -= 1
        action = self._action.copy()
        action[act.STOP] = -1.0
        if self._keeps_grip:
            action[act.GRIP] = expert[act.GRIP]
        return action


def drifting(rng: np.random.Generator) -> Learner:
    """Returns a half-trained learner: the demonstrator's action with noise and lapses."""
    return Disturbed(rng, NOISE, LAPSES)


def as_told(expert: np.ndarray) -> np.ndarray:
    """See `Learner`."""
    return expert


def learner(policy: str, rng: np.random.Generator) -> Learner:
    """Creates the learner of an episode."""
    return {"random": Random, "drifting": drifting}.get(policy, lambda _: as_told)(rng)


def ask(env: SkillEnv, demonstrator: Asked, settings: Settings, rng: np.random.Generator) -> int:
    """Collects `settings.states` labels under a learner; returns the number of episodes."""
    episodes, horizon = 0, registry.get(demonstrator.skill).load_settings().horizon
    while demonstrator.states < settings.states:
        env.reset(seed=int(rng.integers(2**31)))
        demonstrator.begin(env.episode, env.goal, env.world)
        does = learner(settings.policy, rng)
        limit = EPISODE_STEPS if settings.policy == "random" else horizon
        lost = 0
        for _ in range(min(limit, settings.states - demonstrator.states)):
            action, valid = demonstrator.label(env.world)
            lost = 0 if valid else lost + 1
            *_, terminated, _, _ = env.step(does(action))
            over = terminated or lost >= LOST or action[act.STOP] > 0
            if over and settings.policy != "random":
                break
        demonstrator.end()
        episodes += 1
    return episodes


@dataclasses.dataclass(slots=True)
class Takeovers:
    """Successes after takeovers and alone from the same starts, and counts of both outcomes."""

    count: int = 0
    drawn_again: int = 0
    taken_over: int = 0
    alone: int = 0
    ended: dict[str, int] = dataclasses.field(default_factory=dict)
    starts: list[dict[str, Any]] = dataclasses.field(default_factory=list)


def take_over(
    env: SkillEnv, demonstrator: Asked, settings: Settings, rng: np.random.Generator
) -> Takeovers:
    """Lets the demonstrator take over `settings.takeovers` times."""
    found = Takeovers()
    while found.count < settings.takeovers:
        env.reset(seed=int(rng.integers(2**31)))
        start = {"start": env.start_index}
        demonstrator.begin(env.episode, env.goal, env.world)
        alone = acts(env, demonstrator)
        for _ in range(REDRAWS):
            env.reset(options=start)
            demonstrator.begin(env.episode, env.goal, env.world)
            step = int(rng.integers(1, LATEST_STEP))
            if drifts(env, demonstrator, drifting(rng), step):
                break
            found.drawn_again += 1
        else:
            continue
        ended = acts(env, demonstrator)
        found.count += 1
        found.alone += alone == "success"
        found.taken_over += ended == "success"
        how = f"{alone} alone, {ended} after"
        found.ended[how] = found.ended.get(how, 0) + 1
        found.starts.append({**start, "step": step, "alone": alone, "after": ended})
    return found


def drifts(env: SkillEnv, demonstrator: Asked, does: Learner, steps: int) -> bool:
    """Lets a learner act for `steps` steps; returns whether the episode is still running."""
    for _ in range(steps):
        action, _ = demonstrator.label(env.world)
        *_, terminated, _, _ = env.step(does(action))
        if terminated:
            return False
    return True


def acts(env: SkillEnv, demonstrator: Asked) -> str:
    """Lets the demonstrator act for one episode; returns how the episode ends."""
    lost = 0
    for _ in range(registry.get(demonstrator.skill).load_settings().horizon):
        action, valid = demonstrator.label(env.world)
        *_, terminated, _, info = env.step(action)
        lost = 0 if valid else lost + 1
        if terminated:
            return "success" if info["success"] else env.failures[info["failure"]]
        if lost >= LOST:
            return "lost"
    return "timeout"


def measure(skill: str, settings: Settings) -> dict[str, Any]:
    """Measures a skill's demonstrator under a learner; returns JSON types.

    Raises:
        UserError: the skill has no demonstrator.
    """
    demonstrator, rng = Asked(skill), np.random.default_rng(settings.seed)
    horizon = registry.get(skill).load_settings().horizon + LATEST_STEP
    homes = {"num_objects": settings.num_objects, "num_episodes": settings.num_episodes}
    env = SkillEnv(skill, horizon=horizon, **homes)
    warm_up = dataclasses.replace(settings, states=EPISODE_STEPS, policy="told")
    ask(env, demonstrator, warm_up, rng)  # compiles
    demonstrator.reset()
    episodes = ask(env, demonstrator, settings, rng)
    row: dict[str, Any] = {
        "skill": skill,
        "policy": settings.policy,
        "states": demonstrator.states,
        "episodes": episodes,
        "exceptions": demonstrator.errors.total(),
        "valid": demonstrator.valid / max(demonstrator.states, 1),
        "labels_per_s": demonstrator.states / max(demonstrator.seconds, 1e-9),
        "slowest_ms": 1e3 * demonstrator.slowest,
        "plans_per_1000": 1e3 * demonstrator.notes["plans"] / max(demonstrator.states, 1),
        "notes": dict(demonstrator.notes.most_common()),
    }
    if settings.policy == "drifting" and settings.takeovers:
        row["takeovers"] = dataclasses.asdict(take_over(env, demonstrator, settings, rng))
        row["exceptions"] = demonstrator.errors.total()
    row["errors"] = dict(demonstrator.errors.most_common(10))
    env.close()
    return row


def table(row: dict[str, Any]) -> Table:
    """Returns the results of a skill as a table, one per line."""
    shown = Table(row["skill"], row["policy"], box=SIMPLE_HEAD, pad_edge=False)
    shown.columns[1].justify = "right"
    shown.add_row("states", f"{row['states']:,}")
    shown.add_row("episodes", f"{row['episodes']:,}")
    shown.add_row("exceptions", f"{row['exceptions']:,}")
    shown.add_row("valid labels", f"{row['valid']:.1%}")
    shown.add_row("labels per second", f"{row['labels_per_s']:,.0f}")
    shown.add_row("slowest label", f"{row['slowest_ms']:,.0f} ms")
    shown.add_row("plans per 1,000 states", f"{row['plans_per_1000']:.1f}")
    if "takeovers" in row:
        found = row["takeovers"]
        shown.add_row("successes after taking over", f"{found['taken_over']} of {found['count']}")
        shown.add_row("alone from the same starts", f"{found['alone']} of {found['count']}")
        shown.add_row("drawn again", f"{found['drawn_again']}")
        for name, count in found["ended"].items():
            shown.add_row(f"  {name}", f"{count}")
    for name, count in row["notes"].items():
        shown.add_row(f"  {name}", f"{count:,}")
    return shown


def main(words: Sequence[str]) -> int:
    """Measures, prints and optionally writes results; returns 1 if there were exceptions."""
    if not words:
        print(__doc__)
        return 2
    try:
        settings = config.load(Settings, config.parse(words[1:]))
        folder = files.check_writable(settings.out) if settings.out else None
        row = measure(words[0], settings)
    except UserError as error:
        print(f"demonstrators: {error}", file=sys.stderr)
        return 2
    Console().print(table(row))
    for error, count in row["errors"].items():
        print(f"{count} times\n{error}")
    if folder is not None:
        files.write_json(folder / "demonstrator.json", row)
    return int(row["exceptions"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
