"""A skill as a gymnasium environment of one home.

An observation is a dict: "state" (k,), and with `depth` "depth" (height, width), 0 to 10 m mapped
to 0 to 1, or (1, height, width) with `depth_channel`. With `cameras` other pictures are there by
their names; "head_depth" is always called "depth". What lies outside the bounds of its space,
such as an object that was flung out of the home, is shown at the bound. An action is (11,) in
[-1, 1], the same layout for every skill (`tpsrl.world.action`); parts outside `action_mask` have no
effect.
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
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState


class SkillEnv(Copied, gymnasium.Env[Observation, np.ndarray]):
    """One skill in one home; keyword arguments are those of `skills.envs.options.EnvKeywords`.

    A `simulator` takes the place of the one that they ask for. `depth_channel` gives depth a
    leading axis of one channel.

    `reset(options={"start": 3})` takes that start instead of a random one. An `info` has the same
    keys after a reset and a step, all numbers: "start", the start that was taken; "success";
    "failure", a place in `failures`; "reward_terms"; "results", of each condition of success
    whether it "holds" now and its "margin", in `units`; and of skills that drive somewhere "path",
    how well it drove until now (`skills.core.skill.Skill.driving`).

    `copy.deepcopy` and `pickle` give an environment that goes on exactly as this one.

    Raises:
        UnknownKeyword: there is no such keyword argument.
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
        self.reward_terms: dict[str, float] = {}  # of the last step

    @property
    def action_mask(self) -> np.ndarray:
        """(11,) bool: the parts of the action that have an effect."""
        return self.batch.mask.copy()

    @property
    def units(self) -> dict[str, str]:
        """Units of the margins in an info's "results", by condition; "bool": 1 or -1."""
        return self.batch.units(0)

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
        """The home and its task, frozen, without the random generator of later starts."""
        check_open(self.closed)
        return self.batch.snapshot(0)

    def restore(self, snapshot: SkillSnapshot) -> Observation:
        """Puts home and task exactly into the frozen state; what it shows.

        The snapshot may be of another environment of the skill, with the same sensors and number of
        slots.

        Raises:
            UserError: it does not fit, or is none.
        """
        check_open(self.closed)
        return self._shown(self.batch.restore(0, snapshot))

    def render(self) -> np.ndarray | None:
        """A picture (360, 480, 3) uint8 of the home, None without a render mode."""
        check_open(self.closed)
        return None if self.render_mode is None else self.batch.simulator.render(0)

    def close(self) -> None:
        """See `gymnasium.Env.close`."""
        self.closed = True
        self.batch.simulator.close()

    def _shown(self, observation: Observation) -> Observation:
        """Of the batch's only home."""
        return {
            name: values[0] for name, values in fitted(observation, self.observation_space).items()
        }


def observation_space(options: EnvOptions, depth_channel: bool = False) -> Any:
    """The space of one home's observations, a `gymnasium.spaces.Dict`.

    Raises:
        UserError: depth is to have a channel axis, and there is no camera.
    """
    if not isinstance(depth_channel, bool):
        raise UserError(f"depth_channel: {depth_channel!r} is not true or false")
    if depth_channel and options.inputs.depth is None:
        raise UserError("depth_channel: it needs a depth camera; nearest: false")
    inputs, critic = options.inputs, options.critic
    low, high = inputs.bounds()
    parts: dict[str, spaces.Space[Any]] = {"state": spaces.Box(low, high, dtype=np.float32)}
    if critic is not None:
        low, high = critic.bounds()
        # Behind the true state: the share of the horizon that is left.
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
    most = len(cameras.CLASSES) - 1 if kind == cameras.SEMANTIC else 255
    return spaces.Box(0, most, shape, np.uint8)


def action_space() -> spaces.Box:
    """The actions of one home."""
    return spaces.Box(-1.0, 1.0, (act.SIZE,), np.float32)


def choose(
    source: StartSource, rng: np.random.Generator, options: Mapping[str, Any] | None
) -> tuple[int, Start]:
    """The start that `reset(options=...)` names, or a random one.

    Raises:
        UnknownKeyword: there is no such option.
        UserError: there is no such start.
    """
    for name in reset_options(options):
        if name != "start":
            raise unknown_keyword("reset options", name, ["start"])
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


def fitted(shown: Observation, space: Any) -> Observation:
    """Observations (n, ...) in the form of the space of one home's.

    Vectors are held within its bounds, as pictures are by themselves; depth has its shape.
    """
    for name in shown.keys() & {"state", "critic"}:
        np.clip(shown[name], space[name].low, space[name].high, out=shown[name])
    if "depth" in shown:
        shown["depth"] = shown["depth"].reshape(-1, *space["depth"].shape)
    return shown
