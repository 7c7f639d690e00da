"""A skill as a gymnasium environment of one home.

An observation is a dict: "state" (k,), and with `depth` "depth" (height, width), 0 to 10 m mapped
to 0 to 1. What lies outside the bounds of its space, such as an object that was flung out of the
home, is shown at the bound. An action is (11,) in [-1, 1], the same layout for every skill
(`tpsrl.world.action`); parts outside `action_mask` have no effect.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from skills.core.inputs import PolicyInputs
from skills.core.interface import SkillGoal
from skills.envs.batch import BatchStep, SkillBatch, SkillSnapshot, checked_actions
from skills.envs.options import EnvOptions, check_whole
from skills.starts.source import StartSource
from skills.starts.start import Start
from tpsrl.errors import UserError, unknown
from tpsrl.rl.envs.vec_env import MAP, Observation
from tpsrl.sim.base import Simulator
from tpsrl.world import action as act
from tpsrl.world import height_map
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState


class SkillEnv(gymnasium.Env[Observation, np.ndarray]):
    """One skill in one home; keyword arguments are those of `skills.envs.options.EnvKeywords`.

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
        **given: Any,
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise unknown("render_mode", render_mode, ["rgb_array"])
        options = EnvOptions.of(skill, **given)
        self.render_mode = render_mode
        self.batch = SkillBatch(options, homes_of(simulator) or options.simulator(1))
        self._closed = False
        self._source = options.source()
        self.observation_space = observation_space(options)
        self.action_space = action_space()
        self.start_index = -1
        self.reward_terms: dict[str, float] = {}  # of the last step

    @property
    def action_mask(self) -> np.ndarray:
        """(11,) bool: the parts of the action that have an effect."""
        return self.batch.mask.copy()

    @property
    def inputs(self) -> PolicyInputs:
        """What an observation is made of."""
        return self.batch.options.inputs

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


def observation_space(options: EnvOptions) -> Any:
    """The space of one home's observations, a `gymnasium.spaces.Dict`."""
    inputs, critic = options.inputs, options.critic
    low, high = inputs.bounds()
    parts: dict[str, spaces.Space[Any]] = {"state": spaces.Box(low, high, dtype=np.float32)}
    if critic is not None:
        low, high = critic.bounds()
        # Behind the true state: the share of the horizon that is left.
        low, high = np.append(low, np.float32(0.0)), np.append(high, np.float32(1.0))
        parts["critic"] = spaces.Box(low, high, dtype=np.float32)
    if inputs.depth is not None:
        parts["depth"] = spaces.Box(0.0, 1.0, inputs.depth, np.float32)
    if inputs.height_map:
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
