"""A skill in many homes of one simulator, any subset of which is stepped in one call.

This is what collectors drive; the gymnasium environments are thin covers of it.
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from skills import registry
from skills.core import task
from skills.core.interface import Margin, SkillGoal, SkillThresholds
from skills.core.path_metrics import Path
from skills.core.task import Goals, Outcome, TaskSettings, TaskState, View
from skills.envs import sensors as observation
from skills.envs.path_meter import PathMeter, door_positions
from tpsrl import config
from tpsrl.errors import UserError, unknown
from tpsrl.sim.base import Simulator, Snapshot
from tpsrl.world import action as act
from tpsrl.world.episode import Episode
from tpsrl.world.floor import floor_map
from tpsrl.world.scan import Scanner
from tpsrl.world.state import WorldState

if TYPE_CHECKING:
    from skills.starts.draw import Start

Observation = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True, slots=True)
class BatchOptions:
    """What the homes show and allow.

    `depth` is the (height, width) of the head depth, None for none. `sensors` chooses the vector
    beside it ("habitat" or "full", see `skills.envs.sensors`; None: habitat with depth, full
    without). `base_movement` false holds the base still, the limited action space of the paper's
    ablation. `settings` changes entries of `configs/skill/NAME.yaml`.
    """

    depth: tuple[int, int] | None = None
    sensors: str | None = None
    base_movement: bool = True
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    thresholds: SkillThresholds = dataclasses.field(default_factory=SkillThresholds)


@dataclasses.dataclass(frozen=True, slots=True)
class BatchStep:
    """Of m homes: observations, what came of the step, and the masked actions (m, 11)."""

    observation: Observation
    outcome: Outcome
    actions: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True)
class SkillSnapshot:
    """A home in the middle of a skill: the engine's snapshot, the task's state, the way driven."""

    home: Snapshot
    task: dict[str, np.ndarray]
    path: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)


class SkillBatch:
    """One skill in every home of a simulator; numpy, homes are named by `env_ids`.

    `depth_s` are the seconds that depth has taken so far.

    Raises:
        UserError: skill, choice of sensors or a setting is unknown; names the nearest.
    """

    def __init__(
        self, skill: str, simulator: Simulator, options: BatchOptions | None = None
    ) -> None:
        self.options = options = options or BatchOptions()
        self.skill = registry.get(skill)
        self.simulator = simulator
        self.settings = load_settings(skill, options.settings)
        self.thresholds = options.thresholds
        self.sensors = observation.shown(self.skill, options.sensors, options.depth is not None)
        self.mask = self.skill.mask()
        if not options.base_movement:
            self.mask[act.BASE] = False
        self.episodes: list[Episode | None] = [None] * simulator.num_envs
        self.depth_s = 0.0
        self._task = TaskState.empty(simulator.num_envs)
        self._all = list(range(simulator.num_envs))
        self._held = np.full(simulator.num_envs, -1)
        self._worlds: dict[int, tuple[WorldState, int]] = {}
        reach_m = self.skill.reach_m(self.thresholds)
        self._meter = None if reach_m is None else PathMeter(simulator.num_envs, reach_m)
        self._scanner = Scanner(simulator.num_envs) if observation.SCAN in self.sensors else None

    @property
    def num_envs(self) -> int:
        """Number of homes."""
        return self.simulator.num_envs

    @property
    def state_size(self) -> int:
        """Length k of the vector in an observation."""
        return observation.size(self.sensors)

    def reset(self, env_ids: Sequence[int], starts: Sequence["Start"]) -> Observation:
        """Puts each home into its start; the first observations.

        Raises:
            UserError: see `tpsrl.sim.base.Simulator.reset` and `restore`.
        """
        for env, start in zip(env_ids, starts, strict=True):
            if start.snapshot is None:
                self.simulator.reset([env], [start.episode])
            else:
                self.simulator.restore(env, start.snapshot)
            self._place(env, start.episode)
        world = self.simulator.state(env_ids)
        goals = Goals.of([start.goal for start in starts])
        self._check(goals, starts)
        begun = task.begin(self.skill, goals, world, self.thresholds)
        self._task.put(np.asarray(env_ids), begun)
        self._keep(env_ids, world)
        if self._meter is not None:
            episodes = [start.episode for start in starts]
            self._meter.begin(env_ids, episodes, goals.position, world)
        view = self.skill.look(goals, world, self.thresholds)
        return self._observe(env_ids, begun, view, world)

    def step(self, env_ids: Sequence[int], actions: np.ndarray) -> BatchStep:
        """One control step of these homes under actions (m, 11); the others stand still.

        Raises:
            UserError: an action is of the wrong shape or not finite, or a home was not reset.
        """
        rows = np.asarray(env_ids)
        # All homes in their order, the usual case, need no copies.
        whole = list(env_ids) == self._all
        before = self._task if whole else self._task.take(rows)
        actions = task.masked(self._checked(env_ids, actions), self.mask, self._held[rows])
        self.simulator.step(env_ids, actions)
        world = self.simulator.state(env_ids)
        if self._meter is not None:
            self._meter.drive(env_ids, world)
        path = self._path(env_ids)
        after, view, outcome = task.step(
            self.skill, before, actions, world, self.settings, self.thresholds, path
        )
        if whole:
            self._task = after
        else:
            self._task.put(rows, after)
        self._keep(env_ids, world)
        return BatchStep(self._observe(env_ids, after, view, world), outcome, actions)

    def observe(self, env_ids: Sequence[int]) -> Observation:
        """What these homes show now."""
        state, world = self.task_state(env_ids), self.simulator.state(env_ids)
        view = self.skill.look(state, world, self.thresholds)
        return self._observe(env_ids, state, view, world)

    def sense(
        self, env_ids: Sequence[int], state: TaskState, view: View, world: WorldState
    ) -> np.ndarray:
        """The vectors (m, k) of these homes' observations, beside depth."""
        if observation.WAY in self.sensors and self._meter is not None:
            view.ahead = self._meter.ahead(env_ids, world.base)
        if self._scanner is not None:
            view.scan = self._scanner.ranges(env_ids, world.base)
        vectors: np.ndarray = observation.observe(self.sensors, state, view, world)
        return vectors

    def world(self, env_id: int) -> WorldState:
        """The last known state of one home, batch of one."""
        if env_id not in self._worlds:
            raise UserError(f"home {env_id}: not reset yet")
        world, row = self._worlds[env_id]
        return world.row(row)

    def episode(self, env_id: int) -> Episode:
        """The record that a home was reset with."""
        episode = self.episodes[env_id]
        if episode is None:
            raise UserError(f"home {env_id}: not reset yet")
        return episode

    def goal(self, env_id: int) -> SkillGoal:
        """What one home is about."""
        return self._task.goal(env_id)

    def steps(self, env_id: int) -> int:
        """Control steps since the skill began."""
        return int(self._task.steps[env_id])

    def task_state(self, env_ids: Sequence[int]) -> TaskState:
        """A copy of what the tasks of some homes remember."""
        return self._task.take(np.asarray(env_ids))

    def results(self, env_id: int, stop: bool) -> dict[str, Margin]:
        """The named results of one home, as the executor has them."""
        goal, world = self.goal(env_id), self.world(env_id)
        return self.skill.results(goal, world, stop, self.thresholds, self._path([env_id]))

    def path_metrics(self, env_id: int, success: bool) -> dict[str, float] | None:
        """How well a home drove, as `PathMeter.metrics` says; None for skills that go nowhere.

        Raises:
            UserError: no free floor is near the goal.
        """
        return None if self._meter is None else self._meter.metrics(env_id, success)

    def snapshot(self, env_id: int) -> SkillSnapshot:
        """A home and its task, frozen."""
        home = self.simulator.snapshot(env_id)
        state = self._task.take(np.array([env_id])).to_arrays()
        return SkillSnapshot(home, state, self._meter.to_arrays(env_id) if self._meter else {})

    def restore(self, env_id: int, snapshot: SkillSnapshot) -> Observation:
        """Puts a home and its task exactly into the frozen state; what it shows, (1, ...).

        Raises:
            UserError: the snapshot is from another engine, home size or version of the task.
        """
        state = TaskState.from_arrays(snapshot.task)
        self.simulator.restore(env_id, snapshot.home)
        if self._meter is not None:
            goal = state.position[0]
            self._meter.restore(env_id, snapshot.path, snapshot.home.episode, goal)
        self._place(env_id, snapshot.home.episode)
        self._task.put(np.array([env_id]), state)
        world = self.simulator.state([env_id])
        self._keep([env_id], world)
        view = self.skill.look(state, world, self.thresholds)
        return self._observe([env_id], state, view, world)

    def _place(self, env_id: int, episode: Episode) -> None:
        """Notes what a home has been put into."""
        self.episodes[env_id] = episode
        if self._scanner is not None:
            floor = floor_map(episode.layout, joints=door_positions(episode))
            self._scanner.set(env_id, floor)

    def _path(self, env_ids: Sequence[int]) -> Path | None:
        """The ways of homes, for a skill that is judged by them."""
        if self._meter is None or not self.skill.follows_path:
            return None
        return self._meter.path(env_ids)

    def _keep(self, env_ids: Sequence[int], world: WorldState) -> None:
        self._held[np.asarray(env_ids)] = world.held
        for row, env in enumerate(env_ids):
            self._worlds[env] = (world, row)

    def _observe(
        self, env_ids: Sequence[int], state: TaskState, view: View, world: WorldState
    ) -> Observation:
        shown = {"state": self.sense(env_ids, state, view, world)}
        if self.options.depth is not None:
            begun = time.perf_counter()
            shown["depth"] = self.simulator.depth(env_ids, *self.options.depth)
            self.depth_s += time.perf_counter() - begun
        return shown

    def _checked(self, env_ids: Sequence[int], actions: np.ndarray) -> np.ndarray:
        actions = np.asarray(actions, dtype=np.float64)
        if actions.shape != (len(env_ids), act.SIZE):
            raise UserError(
                f"actions: shape is {actions.shape}, expected ({len(env_ids)}, {act.SIZE})"
            )
        for env in env_ids:
            if env not in self._worlds:
                raise UserError(f"home {env}: not reset yet")
        return actions

    def _check(self, goals: Goals, starts: Sequence["Start"]) -> None:
        """Refuses goals that the skill cannot be about."""
        for index, start in zip(goals.object.tolist(), starts, strict=True):
            if not -1 <= index < len(start.episode.objects):
                raise UserError(
                    f"goal.object: is {index}, but episode {start.episode.id} has objects 0 to "
                    f"{len(start.episode.objects) - 1}"
                )
        for field in self.skill.needs:
            values = goals.joint if field == "marker" else goals.object
            missing = values < 0
            if field == "position":
                missing = np.array([start.goal.position is None for start in starts])
            if missing.any():
                raise UserError(f"goal.{field}: {self.skill.name} needs one")


def load_settings(skill: str, changes: Mapping[str, Any]) -> TaskSettings:
    """The settings of `configs/skill/NAME.yaml` with some entries changed.

    Raises:
        UserError: an entry is unknown (names the nearest) or not a number.
    """
    settings = config.load_preset("skill", skill, registry.get(skill).settings_type)
    names = [field.name for field in dataclasses.fields(settings)]
    for name, value in changes.items():
        if name not in names:
            raise unknown("settings", name, names)
        limit = name in ("force_total_n", "force_instant_n") and value is None
        if not limit and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise UserError(f"settings.{name}: {value!r} is not a number")
        if name == "horizon" and (value != int(value) or value < 1):
            raise UserError(f"settings.horizon: {value} is not a whole number of at least 1")
    return dataclasses.replace(settings, **changes)
