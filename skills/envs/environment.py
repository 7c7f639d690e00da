"""A skill as a gymnasium environment of one home.

An observation is a dict: "state" (k,), and with `depth` "depth" (height, width), 0 to 10 m mapped
to 0 to 1. What lies outside the bounds of its space, such as an object that was flung out of the
home, is shown at the bound. An action is (11,) in [-1, 1], the same layout for every skill
(`tpsrl.world.action`); parts outside `action_mask` have no effect.
"""

import dataclasses
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from skills import registry
from skills.core import sensors
from skills.core.interface import SkillGoal
from skills.envs.batch import (
    BatchOptions,
    BatchStep,
    SkillBatch,
    SkillSnapshot,
    action_mask,
    checked_actions,
)
from skills.starts.dataset import BASE_EPISODES
from skills.starts.mixture import is_mixture
from skills.starts.source import StartSource
from skills.starts.start import Start
from tpsrl import config, sim
from tpsrl.errors import UserError, unknown
from tpsrl.rl.envs.vec_env import MAP, Observation
from tpsrl.runtime import machine
from tpsrl.sim.base import Simulator
from tpsrl.world import action as act
from tpsrl.world import height_map
from tpsrl.world.episode import Episode
from tpsrl.world.slots import capacity_for
from tpsrl.world.state import WorldState

_MOST_OBJECTS = 30
_NUMBER = 4  # bytes of a float32
_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "critic": ((bool,), "true or false"),
    "height_map": ((bool,), "true or false"),
    "sensors": ((str, tuple, NoneType), "the name of a choice of sensors"),
    "base_movement": ((bool,), "true or false"),
    "settings": ((Mapping,), "a dictionary of settings"),
    "starts": ((str, os.PathLike, Sequence, NoneType), "a path, a mixture or a list of starts"),
    "split": ((str,), "the name of a split"),
    "filter_base": ((bool,), "true or false"),
    "engine": ((str,), "the name of an engine"),
}
_WHOLE: Mapping[str, tuple[int, int | None]] = {  # least and most
    "horizon": (1, None),
    "dataset_seed": (0, None),
    "num_objects": (0, _MOST_OBJECTS),
    "num_episodes": (1, BASE_EPISODES),
    "slots": (1, None),
}
_OPTIONAL = ("horizon", "num_objects", "slots")


@dataclasses.dataclass(frozen=True, slots=True)
class EnvOptions:
    """What an environment can be told, by the names of the keyword arguments.

    Depth, critic, sensors, height map, base movement, settings and thresholds are as in
    `skills.envs.batch.BatchOptions`, and one number for `depth` is that of rows and of columns;
    `horizon` is short for that setting. Starts, split, seed of
    the dataset, `num_objects` and `num_episodes` are as in `skills.starts.source.StartSource`;
    `filter_base` and `engine` as in `tpsrl.sim.make`; homes have 12 or 30 `slots` for objects
    (None: those of the banks that starts are of, or else what the objects need, if the skill has
    any).
    """

    depth: Sequence[int] | int | None = None
    critic: bool = False
    sensors: str | tuple[str, ...] | None = None
    height_map: bool = False
    base_movement: bool = True
    horizon: int | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    thresholds: Any = None
    starts: str | os.PathLike[str] | Sequence[Start] | None = None
    split: str = "train"
    dataset_seed: int = 0
    num_objects: int | None = None
    num_episodes: int = 63
    slots: int | None = None
    filter_base: bool = True
    engine: str = "mujoco"

    @staticmethod
    def of(given: Mapping[str, Any]) -> "EnvOptions":
        """The options of keyword arguments.

        Raises:
            UserError: one is unknown (names the nearest), is not of its kind, out of range, or
                given in two ways.
        """
        names = [field.name for field in dataclasses.fields(EnvOptions)]
        for name in given:
            if name not in names:
                raise unknown("environment", name, names)
        for name, value in given.items():
            if name in _WHOLE and not (value is None and name in _OPTIONAL):
                check_whole(name, value, *_WHOLE[name])
            elif name in _KINDS and not isinstance(value, _KINDS[name][0]):
                raise UserError(f"{name}: {value!r} is not {_KINDS[name][1]}")
        if given.get("horizon") is not None and "horizon" in given.get("settings", {}):
            raise UserError("horizon: the settings have one too; leave one of them out")
        starts = given.get("starts")
        if isinstance(starts, Sequence) and not isinstance(starts, str):
            for number, start in enumerate(starts):
                if not isinstance(start, Start):
                    raise UserError(f"starts: number {number}, {start!r}, is not a start")
        return EnvOptions(**given)

    def check(self, skill: str) -> None:
        """Refuses what a skill cannot do without, before anything is made.

        Raises:
            UserError: there is no such skill, or it has no other means than a base that is held.
        """
        action_mask(skill, self.base_movement)

    def simulator(self, skill: str, num_envs: int) -> Simulator:
        """The homes that these options ask for.

        Raises:
            UserError: an option is out of range, the homes with their pictures do not fit into
                memory, or starts are of another engine.
        """
        self._check_memory(num_envs)
        slots = self._slots_of_banks(skill) if self.slots is None else self.slots
        if slots is not None:
            return sim.make(self.engine, num_envs, slots, filter_base=self.filter_base)
        own = registry.get(skill).start_states().num_objects
        count = own if own == 0 else self.num_objects
        if count is None:  # given starts say how many only when they are read
            count = own if self.starts is None else _MOST_OBJECTS
        return sim.make(self.engine, num_envs, capacity_for(count), filter_base=self.filter_base)

    def _check_memory(self, num_envs: int) -> None:
        """Refuses what could not be allocated: of pictures those of the space, twice, and one."""
        check_whole("num_envs", num_envs)
        size = image_size(self.depth)

        def needed(values: Mapping[str, int]) -> float:
            pixels = values.get("depth", 0) ** 2
            homes = values["num_envs"]
            return homes * machine.HOME_BYTES + (3 * homes + 2) * pixels * _NUMBER

        given = {"num_envs": num_envs}
        if size is not None:
            given["depth"] = math.isqrt(size[0] * size[1])
        machine.refuse(given, needed, machine.memory_bytes(), {"num_envs": 1, "depth": 256})

    def _slots_of_banks(self, skill: str) -> int | None:
        """What the homes of banks hold that starts are of, None where there are none."""
        if not is_mixture(self.starts):
            return None
        return self.source(skill).slots(self.engine)

    def batch(self, skill: str, simulator: Simulator) -> SkillBatch:
        """The skill in every home of a simulator."""
        settings = dict(self.settings)
        if self.horizon is not None:
            settings["horizon"] = self.horizon
        options = BatchOptions(
            depth=image_size(self.depth),
            critic=self.critic,
            sensors=self.sensors,
            height_map=self.height_map,
            base_movement=self.base_movement,
            settings=settings,
            thresholds=self.thresholds,
        )
        return SkillBatch(skill, simulator, options)

    def source(self, skill: str) -> StartSource:
        """Where episodes start."""
        return StartSource(
            skill,
            self.starts,
            split=self.split,
            seed=self.dataset_seed,
            num_objects=self.num_objects,
            num_episodes=self.num_episodes,
        )


class SkillEnv(gymnasium.Env[Observation, np.ndarray]):
    """One skill in one home; keyword arguments are those of `EnvOptions`.

    A `simulator` takes the place of the one that they ask for.

    `reset(options={"start": 3})` takes that start instead of a random one. The `info` of a reset
    has "start", the one that was taken. That of a step has "success", "failure" (one of
    `Skill.failures`), "reward_terms" and, when the episode is over, "results": each condition of
    success with whether it holds, its margin and unit, and of skills that drive somewhere "path":
    how well it drove (`skills.core.skill.Skill.driving`).

    Raises:
        UserError: an option is unknown or out of range.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(
        self,
        skill: str,
        render_mode: str | None = None,
        simulator: Simulator | None = None,
        **options: Any,
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise unknown("render_mode", render_mode, ["rgb_array"])
        chosen = EnvOptions.of(options)
        self.render_mode = render_mode
        self.batch = chosen.batch(skill, homes_of(simulator) or chosen.simulator(skill, 1))
        self._closed = False
        self._source = chosen.source(skill)
        self.observation_space = observation_space(self.batch)
        self.action_space = action_space()
        self.start_index = -1
        self.reward_terms: dict[str, float] = {}  # of the last step

    @property
    def action_mask(self) -> np.ndarray:
        """(11,) bool: the parts of the action that have an effect."""
        return self.batch.mask.copy()

    @property
    def world(self) -> WorldState:
        """The state of the home, batch of one."""
        return self.batch.world(0)

    @property
    def goal(self) -> SkillGoal:
        """What the current episode is about."""
        return self.batch.goal(0)

    @property
    def episode(self) -> Episode:
        """The record that the home was reset with."""
        return self.batch.episode(0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """See `gymnasium.Env.reset`."""
        check_open(self._closed)
        super().reset(seed=seed)
        self.start_index, start = choose(self._source, self.np_random, options)
        shown = self._shown(self.batch.reset([0], [start]))
        return shown, {"start": self.start_index}

    def step(self, action: np.ndarray) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """See `gymnasium.Env.step`."""
        check_open(self._closed)
        done = self.batch.step([0], checked_actions([action], 1))
        outcome = done.outcome
        terminated, truncated = bool(outcome.terminated[0]), bool(outcome.truncated[0])
        terms = outcome.reward_terms.items()
        self.reward_terms = {name: float(term[0]) for name, term in terms}
        info: dict[str, Any] = {
            "success": bool(outcome.success[0]),
            "failure": self.batch.skill.failures[int(outcome.failure[0])],
            "reward_terms": dict(self.reward_terms),
        }
        if terminated or truncated:
            info |= final_info(self.batch, 0, done, 0)
        shown = self._shown(done.observation)
        return shown, float(outcome.reward[0]), terminated, truncated, info

    def snapshot(self) -> SkillSnapshot:
        """The home and its task, frozen."""
        check_open(self._closed)
        return self.batch.snapshot(0)

    def restore(self, snapshot: SkillSnapshot) -> Observation:
        """Puts home and task exactly into the frozen state; what it shows."""
        check_open(self._closed)
        return self._shown(self.batch.restore(0, snapshot))

    def render(self) -> np.ndarray | None:
        """A picture (360, 480, 3) uint8 of the home, None without a render mode."""
        check_open(self._closed)
        return None if self.render_mode is None else self.batch.simulator.render(0)

    def close(self) -> None:
        """See `gymnasium.Env.close`."""
        self._closed = True
        self.batch.simulator.close()

    def _shown(self, observation: Observation) -> Observation:
        """Of the batch's only home."""
        bounded(observation, self.observation_space)
        return {name: values[0] for name, values in observation.items()}


def image_size(depth: Sequence[int] | int | None) -> tuple[int, int] | None:
    """A depth option as (height, width); one number is both.

    Raises:
        UserError: it is not one or two whole numbers of at least 1, or a side is longer than
            `config.MOST_PIXELS`.
    """
    if depth is None:
        return None
    size = tuple(depth) if isinstance(depth, Iterable) else (depth, depth)
    whole = all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in size)
    if len(size) != 2 or not whole or min(size) < 1:
        raise UserError(f"depth: {depth!r} is not an integer >= 1 or a (height, width) pair")
    if max(size) > config.MOST_PIXELS:
        raise UserError(
            f"depth: {depth!r} is out of range, a side has at most {config.MOST_PIXELS} pixels"
        )
    return (int(size[0]), int(size[1]))


def observation_space(batch: SkillBatch) -> Any:
    """The space of one home's observations, a `gymnasium.spaces.Dict`."""
    low, high = sensors.bounds(batch.skill, batch.sensors)
    parts: dict[str, spaces.Space[Any]] = {"state": spaces.Box(low, high, dtype=np.float32)}
    if batch.critic:
        low, high = sensors.bounds(batch.skill, batch.critic)
        # Behind the sensors: the share of the horizon that is left.
        low, high = np.append(low, np.float32(0.0)), np.append(high, np.float32(1.0))
        parts["critic"] = spaces.Box(low, high, dtype=np.float32)
    if batch.options.depth is not None:
        parts["depth"] = spaces.Box(0.0, 1.0, batch.options.depth, np.float32)
    if batch.options.height_map:
        parts[MAP] = spaces.Box(0.0, 1.0, height_map.SHAPE, np.float32)
    return spaces.Dict(parts)


def action_space() -> spaces.Box:
    """The actions of one home."""
    return spaces.Box(-1.0, 1.0, (act.SIZE,), np.float32)


def choose(
    source: StartSource, rng: np.random.Generator, options: Mapping[str, Any] | None
) -> tuple[int, Start]:
    """The start that `reset(options=...)` names, or a random one.

    Raises:
        UserError: an option is unknown, or there is no such start.
    """
    for name in reset_options(options):
        if name != "start":
            raise unknown("reset option", name, ["start"])
    if options and "start" in options:
        start = check_whole("start", options["start"], least=0)
        return start, source[start]
    return source.draw(rng)


def reset_options(options: Any) -> Mapping[str, Any]:
    """The options of a reset.

    Raises:
        UserError: they are no dictionary.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise UserError(f"reset options: {options!r} is not a dictionary such as {{'start': 3}}")
    return options


def check_open(closed: bool) -> None:
    """Refuses an environment that was closed.

    Raises:
        UserError: it was.
    """
    if closed:
        raise UserError("environment: it is closed; create a new one")


def homes_of(simulator: Any) -> Simulator | None:
    """The simulator that a caller brings, if any.

    Raises:
        UserError: it is none.
    """
    if simulator is not None and not hasattr(simulator, "num_envs"):
        raise UserError(f"simulator: {simulator!r} is not a simulator; `tpsrl.sim.make` makes one")
    found: Simulator | None = simulator
    return found


def check_whole(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """A whole number that comes from a caller.

    Raises:
        UserError: it is none, less than the least, or more than the most.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise UserError(f"{name}: {value!r} is not an integer")
    if (least is not None and value < least) or (most is not None and value > most):
        limits = f"at least {least}" if most is None else f"between {least} and {most}"
        raise UserError(f"{name}: must be {limits}, got {value}")
    return int(value)


def final_info(batch: SkillBatch, env_id: int, done: BatchStep, row: int) -> dict[str, Any]:
    """What an info says, as JSON types, of home `env_id` whose episode ended with row `row`."""
    results = batch.results(env_id, bool(done.actions[row, act.STOP] > 0))
    plain = {name: dataclasses.asdict(margin) for name, margin in results.items()}
    path = batch.path_metrics(env_id, bool(done.outcome.success[row]))
    return {"results": plain} if path is None else {"results": plain, "path": path}


def bounded(shown: Observation, space: Any) -> None:
    """Holds the vectors (n, k) of homes within the space of one home's; depth is by itself."""
    for name in shown.keys() - {"depth", MAP}:
        np.clip(shown[name], space[name].low, space[name].high, out=shown[name])
