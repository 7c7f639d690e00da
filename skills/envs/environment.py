"""Gymnasium environment of a skill, with one home.

An observation is a dict: "state" (k,), and with `depth` also "depth" (height, width), where 0 to
10 m are mapped to 0 to 1, or (1, height, width) with `depth_channel`. With `cameras` it has other
pictures by their names; "head_depth" is always called "depth". Values outside the bounds of the
space, such as the position of an object that was flung out of the home, are clipped. An action is
(11,) in [-1, 1], with the same layout for every skill (`tpsrl.world.action`); parts outside
`action_mask` have no effect.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from skills.core.inputs import PolicyInputs
from skills.core.interface import SkillGoal
from skills.envs.batch import SkillBatch, SkillSnapshot, checked_actions
from skills.envs.copying import Copied
from skills.envs.infos import begun, row_of, stepped
from skills.envs.options import EnvOptions, check_whole
from skills.starts.source import StartSource
from skills.starts.start import Start
from tpsrl.errors import UserError, unknown, unknown_keyword
from tpsrl.rl.envs.vec_env import MAP, Observation
from tpsrl.sim.base import Simulator
from tpsrl.world import action as act
from tpsrl.world import cameras, height_map
from tpsrl.world.categories import CATEGORIES
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState


class SkillEnv(Copied, gymnasium.Env[Observation, np.ndarray]):
    """One skill in one home; keyword arguments are those of `skills.envs.options.EnvKeywords`.

    `reset(options={"start": 3})` uses that start state instead of a random one.

    An `info` has the same keys after a reset and a step, with numbers and booleans only: "start",
    the index of the start state; "success"; "failure", an index into `failures`; "reward_terms";
    "results", for each condition of success whether it "holds" now and its "margin" in `units`; and
    for skills that drive "path", the metrics so far (`skills.core.skill.Skill.driving`).

    Copies by `copy.deepcopy` and `pickle` continue exactly as the original.

    Args:
        skill: name of the skill
        render_mode: "rgb_array" or None
        simulator: simulator to use instead of the one that the keyword arguments describe
        depth_channel: whether depth has a leading axis of one channel
        given: see `skills.envs.options.EnvKeywords`

    Raises:
        UnknownKeyword: a keyword argument is unknown.
        UserError: an option is out of range.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(
        self,
        skill: str,
        render_mode: str | None = None,
        simulator: Simulator | None = None,
        depth_channel: bool = False,
        **given: Any,
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise unknown("render_mode", render_mode, ["rgb_array"])
        options = EnvOptions.of(skill, **given)
        self.render_mode = render_mode
        self.brought = simulator is not None
        self.batch = SkillBatch(options, homes_of(simulator) or options.simulator(1))
        self.closed = False
        self.source = options.source()
        self.observation_space = observation_space(options, depth_channel)
        self.action_space = action_space()
        self.failures = self.batch.skill.failures
        self.start_index = -1
        self.reward_terms: dict[str, float] = {}  # those of the last step

    @property
    def action_mask(self) -> np.ndarray:
        """Action mask (11,) bool: True for the parts that have an effect."""
        return self.batch.mask.copy()

    @property
    def units(self) -> dict[str, str]:
        """Units of the margins in an info's "results", by condition; "bool" for 1 or -1."""
        return self.batch.units(0)

    @property
    def inputs(self) -> PolicyInputs:
        """Sensors and pictures of an observation."""
        return self.batch.options.inputs

    @property
    def world(self) -> WorldState:
        """State of the home, batch of one."""
        return self.batch.world(0)

    @property
    def goal(self) -> SkillGoal:
        """Goal of the current episode."""
        return self.batch.goal(0)

    @property
    def episode(self) -> Episode:
        """Episode that the home was reset to."""
        return self.batch.episode(0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """See `gymnasium.Env.reset`."""
        check_open(self.closed)
        super().reset(seed=seed)
        self.start_index, start = choose(self.source, self.np_random, options)
        shown = self._shown(self.batch.reset([0], [start]))
        return shown, row_of(begun(self.batch, [0], [self.start_index]), 0)

    def step(self, action: np.ndarray) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """See `gymnasium.Env.step`."""
        check_open(self.closed)
        done = self.batch.step([0], checked_actions([action], 1))
        outcome = done.outcome
        terminated, truncated = bool(outcome.terminated[0]), bool(outcome.truncated[0])
        info = row_of(stepped(self.batch, [0], [self.start_index], done), 0)
        self.reward_terms = dict(info["reward_terms"])
        shown = self._shown(done.observation)
        return shown, float(outcome.reward[0]), terminated, truncated, info

    def snapshot(self) -> SkillSnapshot:
        """Returns a snapshot of home and task, without the random generator of start states."""
        check_open(self.closed)
        return self.batch.snapshot(0)

    def restore(self, snapshot: SkillSnapshot) -> Observation:
        """Restores home and task exactly and returns the observation.

        The snapshot may come from another environment of the same skill, with the same sensors and
        number of slots.

        Raises:
            UserError: `snapshot` is not a snapshot, or does not fit.
        """
        check_open(self.closed)
        return self._shown(self.batch.restore(0, snapshot))

    def render(self) -> np.ndarray | None:
        """Renders the home, (360, 480, 3) uint8, or returns None without a render mode."""
        check_open(self.closed)
        return None if self.render_mode is None else self.batch.simulator.render(0)

    def close(self) -> None:
        """See `gymnasium.Env.close`."""
        self.closed = True
        self.batch.simulator.close()

    def _shown(self, observation: Observation) -> Observation:
        """Returns the fitted observation of the batch's only home."""
        return {
            name: values[0] for name, values in fitted(observation, self.observation_space).items()
        }


def observation_space(options: EnvOptions, depth_channel: bool = False) -> Any:
    """Returns the space of one home's observations, a `gymnasium.spaces.Dict`.

    Raises:
        UserError: `depth_channel` is not a bool, or is set without a depth camera.
    """
    if not isinstance(depth_channel, bool):
        raise UserError(f"depth_channel: {depth_channel!r} is not true or false")
    if depth_channel and options.inputs.depth is None:
        raise UserError("depth_channel: needs a depth camera; nearest: false")
    inputs, critic = options.inputs, options.critic
    low, high = inputs.bounds()
    parts: dict[str, spaces.Space[Any]] = {"state": spaces.Box(low, high, dtype=np.float32)}
    if critic is not None:
        low, high = critic.bounds()
        # The last entry is the share of the horizon that is left.
        low, high = np.append(low, np.float32(0.0)), np.append(high, np.float32(1.0))
        parts["critic"] = spaces.Box(low, high, dtype=np.float32)
    if inputs.depth is not None:
        shape = (1, *inputs.depth) if depth_channel else inputs.depth
        parts["depth"] = spaces.Box(0.0, 1.0, shape, np.float32)
    if inputs.height_map:
        parts[MAP] = spaces.Box(0.0, 1.0, height_map.SHAPE, np.float32)
    parts |= {name: _picture_space(name, sides) for name, sides in inputs.cameras}
    return spaces.Dict(parts)


def _picture_space(name: str, sides: cameras.Sides) -> spaces.Box:
    shape, kind = cameras.shape_of(name, sides), cameras.split(name)[1]
    if kind == cameras.DEPTH:
        return spaces.Box(0.0, 1.0, shape, np.float32)
    numbers = {cameras.SEMANTIC: len(cameras.CLASSES) - 1, cameras.CATEGORY: len(CATEGORIES)}
    return spaces.Box(0, numbers.get(kind, 255), shape, np.uint8)


def action_space() -> spaces.Box:
    """Returns the space of one home's actions."""
    return spaces.Box(-1.0, 1.0, (act.SIZE,), np.float32)


def choose(
    source: StartSource, rng: np.random.Generator, options: Mapping[str, Any] | None
) -> tuple[int, Start]:
    """Returns index and start state: those that `reset(options=...)` names, or random ones.

    Raises:
        UnknownKeyword: an option is unknown.
        UserError: the start state does not exist.
    """
    for name in reset_options(options):
        if name != "start":
            raise unknown_keyword("reset options", name, ["start"])
    if options and "start" in options:
        start = check_whole("start", options["start"], least=0)
        return start, source[start]
    return source.draw(rng)


def reset_options(options: Any) -> Mapping[str, Any]:
    """Returns the options of a reset, {} for None.

    Raises:
        UserError: `options` is not a dictionary.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise UserError(f"reset options: {options!r} is not a dictionary such as {{'start': 3}}")
    return options


def check_open(closed: bool) -> None:
    """Checks that an environment is not closed.

    Raises:
        UserError: the environment is closed.
    """
    if closed:
        raise UserError("environment: closed; create a new one")


def homes_of(simulator: Any) -> Simulator | None:
    """Returns the caller's simulator, or None if there is none.

    Raises:
        UserError: `simulator` is not a simulator.
    """
    if simulator is not None and not hasattr(simulator, "num_envs"):
        raise UserError(f"simulator: {simulator!r} is not a simulator; `tpsrl.sim.make` makes one")
    found: Simulator | None = simulator
    return found


def fitted(shown: Observation, space: Any) -> Observation:
    """Fits observations (n, ...) to the space of one home's observations.

    Vectors are clipped to the bounds in place, and depth is reshaped. Pictures are always within
    their bounds.
    """
    for name in shown.keys() & {"state", "critic"}:
        np.clip(shown[name], space[name].low, space[name].high, out=shown[name])
    if "depth" in shown:
        shown["depth"] = shown["depth"].reshape(-1, *space["depth"].shape)
    return shown
