"""PointNav as a gymnasium environment of one home, `tpsrl/PointNav-v0`.

An observation is a dict: "state" (6,) as `skills.pointnav.observe` has it, and with `depth` "depth"
(height, width), 0 to 10 m mapped to 0 to 1. An action is (11,) in [-1, 1] as for every skill; only
base and stop have an effect.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from skills import pointnav
from skills.base import SkillGoal
from skills.environment import action_space, image_size
from skills.path_metrics import PathMeter
from skills.pointnav import PointNavSettings, PointNavState
from skills.pointnav_starts import pointnav_start
from skills.starts import Start
from skills.task import FAILURES, masked
from tpsrl import config, sim
from tpsrl.errors import UserError, unknown
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState

Observation = dict[str, np.ndarray]


class PointNavEnv(gymnasium.Env[Observation, np.ndarray]):
    """PointNav in one home.

    `reset(options={"start": 3})` takes that start instead of a random one of the first
    `num_episodes`. An `info` has "success", "failure" (a name of `skills.task.FAILURES`),
    "reward_terms" and, when the episode is over, "path": what `PathMeter.metrics` says of it.

    Args:
        render_mode: None or "rgb_array".
        depth: (height, width) of the head depth, None for none.
        horizon: control steps, None for that of `configs/skill/pointnav.yaml`.
        split, dataset_seed, num_episodes: which starts, see `skills.pointnav_starts`.
        filter_base, engine: see `tpsrl.sim.make`.

    Raises:
        UserError: an argument is unknown or out of range.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(
        self,
        render_mode: str | None = None,
        depth: Sequence[int] | None = None,
        horizon: int | None = None,
        split: str = "train",
        dataset_seed: int = 0,
        num_episodes: int = 10_000,
        filter_base: bool = True,
        engine: str = "mujoco",
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise unknown("render_mode", render_mode, ["rgb_array"])
        for field, value in (("num_episodes", num_episodes), ("horizon", horizon)):
            if value is not None and value < 1:
                raise UserError(f"{field}: must be at least 1, got {value}")
        self.render_mode, self._depth = render_mode, image_size(depth)
        self._split, self._seed, self._num_episodes = split, dataset_seed, num_episodes
        settings = config.load_preset("skill", "pointnav", PointNavSettings)
        self.settings = dataclasses.replace(settings, horizon=horizon or settings.horizon)
        self.simulator = sim.make(engine, slots=12, filter_base=filter_base)
        self.observation_space = self._space()
        self.action_space = action_space()
        self._meter = PathMeter(1)
        self._start: Start | None = None
        self._task: PointNavState | None = None

    @property
    def action_mask(self) -> np.ndarray:
        """(11,) bool: the parts of the action that have an effect."""
        return pointnav.mask()

    @property
    def world(self) -> WorldState:
        """The state of the home, batch of one."""
        return self.simulator.state([0])

    @property
    def episode(self) -> Episode:
        """The record that the home was reset with."""
        return self._begun().episode

    @property
    def goal(self) -> SkillGoal:
        """What the current episode is about."""
        return self._begun().goal

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """See `gymnasium.Env.reset`."""
        super().reset(seed=seed)
        for name in options or {}:
            if name != "start":
                raise unknown("reset option", name, ["start"])
        drawn = int(self.np_random.integers(self._num_episodes))
        index = int((options or {}).get("start", drawn))
        start = self._start = pointnav_start(index, self._split, self._seed)
        self.simulator.reset([0], [start.episode])
        world, goal = self.world, np.array([start.goal.position])[:, :2]
        self._meter.begin([0], [start.episode], goal, world)
        self._task = pointnav.begin(world, goal, self._meter.left.copy())
        return self._observe(world), {"start": index}

    def step(self, action: np.ndarray) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """See `gymnasium.Env.step`."""
        if self._task is None:
            raise UserError("home 0: not reset yet")
        actions = masked(np.asarray(action, float)[None], pointnav.mask(), np.array([-1]))
        self.simulator.step([0], actions)
        world = self.world
        distance = self._meter.step([0], world)
        self._task, done = pointnav.step(self._task, actions, world, distance, self.settings)
        success = bool(done.success[0])
        terminated, truncated = bool(done.terminated[0]), bool(done.truncated[0])
        info: dict[str, Any] = {
            "success": success,
            "failure": FAILURES[int(done.failure[0])],
            "reward_terms": {name: float(term[0]) for name, term in done.terms.items()},
        }
        if terminated or truncated:
            info["path"] = self._meter.metrics(0, success)
        return self._observe(world), float(done.reward[0]), terminated, truncated, info

    def render(self) -> np.ndarray | None:
        """A picture (360, 480, 3) uint8 of the home, None without a render mode."""
        return None if self.render_mode is None else self.simulator.render(0)

    def close(self) -> None:
        """See `gymnasium.Env.close`."""
        self.simulator.close()

    def _begun(self) -> Start:
        if self._start is None:
            raise UserError("home 0: not reset yet")
        return self._start

    def _space(self) -> Any:
        state = spaces.Box(-np.inf, np.inf, (pointnav.OBSERVATION,), np.float32)
        parts: dict[str, spaces.Space[Any]] = {"state": state}
        if self._depth is not None:
            parts["depth"] = spaces.Box(0.0, 1.0, self._depth, np.float32)
        return spaces.Dict(parts)

    def _observe(self, world: WorldState) -> Observation:
        assert self._task is not None
        shown = {"state": pointnav.observe(self._task, world)[0].astype(np.float32)}
        if self._depth is not None:
            shown["depth"] = self.simulator.depth([0], *self._depth)[0]
        return shown
