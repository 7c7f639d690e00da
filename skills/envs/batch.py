"""Batch of homes of one simulator in which one skill runs; one call steps any subset.

The environments of training and of gymnasium are wrappers around this batch.
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from skills import registry
from skills.core import sensors, task
from skills.core.conditions import Conditions, Margin, margins
from skills.core.context import MeasureContext
from skills.core.interface import SkillGoal
from skills.core.measures import Measures
from skills.core.skill import Skill
from skills.core.state import Goals, TaskState
from skills.core.task import StepOutcome
from skills.envs.map_sensors import MapSensors
from skills.envs.options import EnvOptions
from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import MAP, Observation
from tpsrl.sim import engines, frozen
from tpsrl.sim.base import Simulator, Snapshot
from tpsrl.world import action as act
from tpsrl.world.cameras import HEAD_DEPTH
from tpsrl.world.episode import Episode
from tpsrl.world.height_map import HeightMaps
from tpsrl.world.state import WorldState

if TYPE_CHECKING:
    from skills.starts.start import Start


_HEIGHTS = "map."  # prefix of array names in a snapshot


# Not frozen, since it is created at every step.
@dataclasses.dataclass(slots=True)
class BatchStep:
    """Result of a step of m homes: observations, outcome, and the masked actions (m, 11)."""

    observation: Observation
    outcome: StepOutcome
    actions: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True)
class SkillSnapshot:
    """Snapshot of a home during a skill: the engine's snapshot, the task's state, map sensors."""

    home: Snapshot
    task: dict[str, np.ndarray]
    path: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)


class SkillBatch:
    """One skill in every home of a simulator; arrays are numpy's.

    `env_ids` are the numbers of homes; the rows of arrays follow their order. `depth_s` is the time
    in seconds spent on pictures so far.
    """

    def __init__(self, options: EnvOptions, simulator: Simulator) -> None:
        self.options = options
        self.spec = registry.get(options.skill)
        self.skill: Skill = self.spec.definition
        self.simulator = simulator
        self.settings, self.thresholds = options.task, options.thresholds
        self.mask = np.array(options.mask)
        self.episodes: list[Episode | None] = [None] * simulator.num_envs
        self.depth_s = 0.0
        self._task: TaskState | None = None
        self._all = list(range(simulator.num_envs))
        self._held = np.full((2, simulator.num_envs), -1)  # object and joint in each cup
        # (num_envs, S, 3) m, loose objects in the last state; only if `clutter` is penalised.
        self._object_pos: np.ndarray | None = None
        able = sensors.NEIGHBOURS in engines.info(options.engine).capabilities.measures
        grips = self.skill.grips_by_gaps and self.settings.grip > 0.0 and able
        self._needs_gaps = self.settings.near > 0.0 or grips
        self._worlds: dict[int, tuple[WorldState, int]] = {}
        self._terms: tuple[str, ...] | None = None  # names of reward terms
        inputs, critic = options.inputs, options.critic
        self._maps = MapSensors(
            self.skill,
            inputs.sensors if critic is None else (*inputs.sensors, *critic.sensors),
            simulator.num_envs,
            self.thresholds,
            rewards_way=self.settings.way != 0.0,
            rewards_hand=self.settings.hand != 0.0,
            object_margin=options.object_margin,
        )
        self._heights = HeightMaps(simulator.num_envs) if inputs.height_map else None

    @property
    def num_envs(self) -> int:
        """Number of homes."""
        return self.simulator.num_envs

    def reset(
        self,
        env_ids: Sequence[int],
        starts: Sequence["Start"],
        gone: Mapping[int, int] = MappingProxyType({}),
    ) -> Observation:
        """Resets homes to start states and returns the first observations.

        Args:
            env_ids: homes to reset
            starts: start state of each of these homes
            gone: number of control steps to count as taken at the start, by home; default 0

        Raises:
            UserError: a goal does not fit the skill or the episode, or see
                `tpsrl.sim.base.Simulator.reset` and `restore`.
        """
        from skills.starts.start import told_where

        for env, start in zip(env_ids, starts, strict=True):
            if start.snapshot is None:
                self.simulator.reset([env], [start.episode])
            else:
                with told_where(start):
                    self.simulator.restore(env, start.snapshot)
            self.episodes[env] = start.episode
        world = self.simulator.state(env_ids)
        goals = Goals.of([start.goal for start in starts])
        self._check(goals, starts)
        begun = task.begin(self.skill, goals, world, self.thresholds)
        for row, start in enumerate(starts):
            if start.memory is not None:
                with told_where(start):
                    _recall(begun, row, start.memory)
        if gone:
            begun.steps[:] = [gone.get(env, 0) for env in env_ids]
        self._remember(env_ids, begun)
        self._keep(env_ids, world)
        self._maps.begin(env_ids, [start.episode for start in starts], begun, world)
        if self._heights is not None:
            self._heights.begin(env_ids)
        return self._observe(env_ids, begun, world, looks=True)

    def step(self, env_ids: Sequence[int], actions: np.ndarray) -> BatchStep:
        """Steps these homes with actions (m, 11); the other homes do not change.

        Raises:
            UserError: actions have the wrong type or shape or are not finite, or a home was not
                reset.
        """
        # Without copies for all homes in order, the usual case, and with a view for one home.
        whole = list(env_ids) == self._all
        rows = _rows(env_ids)
        held, held_joint = self._held[:, rows]
        actions = task.masked(
            self._checked(env_ids, actions), self.mask, held, held_joint, self.skill.grip
        )
        tasks = self._tasks(env_ids)
        before = tasks if whole else tasks.take(rows)
        self.simulator.step(env_ids, actions)
        world = self.simulator.state(env_ids)
        path = self._maps.drive(env_ids, world)
        object_pos = None if self._object_pos is None else self._object_pos[rows]
        near = self._neighbours(env_ids, before) if self._needs_gaps else None
        after, measures, outcome = task.step(
            self.skill,
            before,
            actions,
            world,
            self.settings,
            self.thresholds,
            path,
            object_pos,
            None if near is None else sensors.gaps_of(near, self.options.object_margin),
        )
        if whole:
            self._task = after
        else:
            tasks.put(rows, after)
        self._keep(env_ids, world)
        shown = self._observe(env_ids, after, world, measures, looks=True, moved=True, near=near)
        return BatchStep(shown, outcome, actions)

    def observe(self, env_ids: Sequence[int]) -> Observation:
        """Returns the current observations of these homes, without updating the robots' maps."""
        return self._observe(env_ids, self.task_state(env_ids), self.simulator.state(env_ids))

    def sense(
        self,
        env_ids: Sequence[int],
        state: TaskState,
        measures: Measures,
        world: WorldState,
        depth: np.ndarray | None = None,
        looks: bool = False,
        near: np.ndarray | None = None,
        pictures: Observation | None = None,
    ) -> Observation:
        """Computes the observation vectors (m, k) of these homes by name: "state" and "critic".

        Args:
            env_ids: homes
            state: state of their tasks
            measures: measures of `world`
            world: state of these homes
            depth: (m, height, width) of the head camera, None without one
            looks: whether to add pictures and laser to the maps of what the robots have seen
            near: result of `Simulator.neighbours`, if it is known already
            pictures: other pictures by name
        """
        readings = self._maps.read(env_ids, world)
        readings.neighbours, readings.pictures = near, pictures
        self._maps.measure(readings, self.simulator, env_ids, state)
        self._maps.read_explored(readings, env_ids, state, world, depth, looks)
        seen = sensors.SensorContext(state, measures, world, readings)
        inputs, critic = self.options.inputs, self.options.critic
        vector = sensors.observe(self.skill, inputs.sensors, seen)
        shown: Observation = {"state": np.asarray(vector)}
        if critic is not None:
            left = 1.0 - state.steps / self.settings.horizon
            true_state = sensors.observe(self.skill, critic.sensors, seen)
            shown["critic"] = np.column_stack((true_state, left)).astype(np.float32)
        return shown

    def world(self, env_id: int) -> WorldState:
        """Returns the last known state of one home, batch of one."""
        if env_id not in self._worlds:
            raise UserError(f"home {env_id}: not reset yet")
        world, row = self._worlds[env_id]
        return world.row(row)

    def episode(self, env_id: int) -> Episode:
        """Returns the episode that a home was reset to."""
        episode = self.episodes[env_id]
        if episode is None:
            raise UserError(f"home {env_id}: not reset yet")
        return episode

    def goal(self, env_id: int) -> SkillGoal:
        """Returns the goal of one home."""
        return self._tasks([env_id]).goal(env_id)

    def steps(self, env_id: int) -> int:
        """Returns the number of control steps since the skill began in one home."""
        return int(self._tasks([env_id]).steps[env_id])

    def task_state(self, env_ids: Sequence[int]) -> TaskState:
        """Returns a copy of the task states of some homes."""
        return self._tasks(env_ids).take(np.asarray(env_ids))

    def conditions(self, env_ids: Sequence[int], stop: np.ndarray) -> Conditions:
        """Returns the conditions of success of m homes.

        Args:
            env_ids: homes
            stop: (m,) bool, whether stop was called in the last step
        """
        verdict = task.evaluate(
            self.skill,
            self.task_state(env_ids),
            self._world_of(env_ids),
            stop,
            self.settings,
            self.thresholds,
            self._maps.path(env_ids),
        )
        return verdict.conditions

    def results(self, env_id: int, stop: bool) -> dict[str, Margin]:
        """Returns the margins of one home's conditions, after "success", as the executor does."""
        return margins(self.conditions([env_id], np.array([stop])))

    def units(self, env_id: int) -> dict[str, str]:
        """Returns the units of the conditions of success by name; the home must have been reset."""
        found = self.conditions([env_id], np.array([False]))
        return {name: condition.unit for name, condition in found.items()}

    def ways(self, env_ids: Sequence[int], success: np.ndarray) -> dict[str, np.ndarray] | None:
        """Returns the metrics of driving of m homes, (m,) by name; see `Skill.driving`.

        None for skills that do not drive.

        Raises:
            UserError: no free floor is near the goal.
        """
        meter = self._maps.meter
        if meter is None or not self._maps.drives:
            return None
        found = self.skill.driving(self.task_state(env_ids), meter.path(env_ids))
        if found is None:
            return meter.metrics(env_ids, success)
        return {name: np.asarray(values) for name, values in found.items()}

    def path_metrics(self, env_id: int, success: bool) -> dict[str, float] | None:
        """Returns the metrics of driving of one home; see `ways`.

        Metrics that are not finite are left out: those of a path, if the map has none to the goal.
        """
        found = self.ways([env_id], np.array([success]))
        if found is None:
            return None
        return {name: float(values[0]) for name, values in found.items() if np.isfinite(values[0])}

    def reward_names(self, env_id: int) -> tuple[str, ...]:
        """Returns the names of the reward terms; the home must have been reset."""
        if self._terms is None:
            state = self.task_state([env_id])
            near = self._neighbours([env_id], state) if self._needs_gaps else None
            _, _, outcome = task.step(
                self.skill,
                state,
                np.zeros((1, act.SIZE)),
                self.world(env_id),
                self.settings,
                self.thresholds,
                self._maps.path([env_id]),
                None if self._object_pos is None else self._object_pos[[env_id]],
                None if near is None else sensors.gaps_of(near, self.options.object_margin),
            )
            self._terms = tuple(outcome.reward_terms)
        return self._terms

    def snapshot(self, env_id: int) -> SkillSnapshot:
        """Returns a snapshot of a home and its task."""
        home = self.simulator.snapshot(env_id)
        arrays = self._maps.to_arrays(env_id)
        if self._heights is not None:
            heights = self._heights.to_arrays(env_id).items()
            arrays |= {f"{_HEIGHTS}{name}": values for name, values in heights}
        return SkillSnapshot(home, self.task_state([env_id]).to_arrays(), arrays)

    def restore(self, env_id: int, snapshot: SkillSnapshot) -> Observation:
        """Restores a home and its task exactly and returns the observation (1, ...).

        Raises:
            UserError: `snapshot` is not a `SkillSnapshot`, or is of another engine, number of slots
                or version of the task.
        """
        if not isinstance(snapshot, SkillSnapshot):
            raise UserError(f"snapshot: must be a SkillSnapshot, got {snapshot!r}")
        self.simulator.restore(env_id, snapshot.home)
        world, episode = self.simulator.state([env_id]), snapshot.home.episode
        # A template with the structure of this skill's task, to be filled with the saved arrays.
        blank = task.begin(self.skill, Goals.of([SkillGoal()]), world, self.thresholds)
        state = blank.like(snapshot.task)
        path = dict(snapshot.path)
        if self._heights is not None:
            names = [name for name in path if name.startswith(_HEIGHTS)]
            heights = {name.removeprefix(_HEIGHTS): path.pop(name) for name in names}
            self._heights.restore(env_id, heights)
        self._maps.restore(env_id, path, episode, state)
        self.episodes[env_id] = episode
        self._remember([env_id], state)
        self._keep([env_id], world)
        return self._observe([env_id], state, world)

    def _neighbours(self, env_ids: Sequence[int], state: TaskState) -> np.ndarray:
        """Returns `Simulator.neighbours` of m homes with these tasks."""
        points = np.asarray(self.skill.destination(state))
        return self.simulator.neighbours(env_ids, np.asarray(state.object), points)

    def _world_of(self, env_ids: Sequence[int]) -> WorldState:
        """Returns the last known state of m homes, without a call of the engine if possible."""
        if len(env_ids) == 1:
            return self.world(env_ids[0])
        known = [self._worlds.get(env, (None, -1)) for env in env_ids]
        world = known[0][0]
        together = [one is world and row == at for at, (one, row) in enumerate(known)]
        if world is None or not all(together) or len(together) < len(world.step):
            return self.simulator.state(env_ids)
        return world

    def _remember(self, env_ids: Sequence[int], state: TaskState) -> None:
        if self._task is None:
            self._task = state.room(self.num_envs)
        self._task.put(np.asarray(env_ids), state)

    def _tasks(self, env_ids: Sequence[int]) -> TaskState:
        if self._task is None:
            raise UserError(f"home {env_ids[0]}: not reset yet")
        return self._task

    def _keep(self, env_ids: Sequence[int], world: WorldState) -> None:
        rows = _rows(env_ids)
        self._held[:, rows] = world.held, world.held_joint
        if self.settings.clutter > 0.0:
            if self._object_pos is None:
                self._object_pos = np.full((self.num_envs, *world.object_pos.shape[1:]), np.nan)
            self._object_pos[rows] = world.object_pos
        for row, env in enumerate(env_ids):
            self._worlds[env] = (world, row)

    def _observe(
        self,
        env_ids: Sequence[int],
        state: TaskState,
        world: WorldState,
        measures: Measures | None = None,
        looks: bool = False,
        moved: bool = False,
        near: np.ndarray | None = None,
    ) -> Observation:
        if measures is None:
            measures = self.skill.measure(MeasureContext(state, world, self.thresholds))
        inputs, depth = self.options.inputs, None
        pictures: Observation = {}
        begun = time.perf_counter()
        if inputs.cameras:
            pictures = self.simulator.look(env_ids, inputs.pictures)
            depth = pictures.pop(HEAD_DEPTH, None)
        elif inputs.depth is not None:
            depth = self.simulator.depth(env_ids, *inputs.depth)
        taken_s = time.perf_counter() - begun
        shown = self.sense(env_ids, state, measures, world, depth, looks, near, pictures)
        shown |= pictures
        if depth is not None:
            shown["depth"] = depth
            if self._heights is not None:
                begun = time.perf_counter()
                if looks:
                    self._heights.look(env_ids, depth, world, moved)
                shown[MAP] = self._heights.show(env_ids, world.base)
                taken_s += time.perf_counter() - begun
        if inputs.cameras or inputs.depth is not None:
            self.depth_s += taken_s
        return shown

    def _checked(self, env_ids: Sequence[int], actions: np.ndarray) -> np.ndarray:
        actions = checked_actions(actions, len(env_ids))
        for env in env_ids:
            if env not in self._worlds:
                raise UserError(f"home {env}: not reset yet")
        return actions

    def _check(self, goals: Goals, starts: Sequence["Start"]) -> None:
        """Raises an error for goals that are not in the episode or lack what the skill needs."""
        from skills.starts.start import check_sought

        for start in starts:
            index = start.goal.object
            if not -1 <= index < len(start.episode.objects):
                raise UserError(
                    f"goal.object: is {index}, but episode {start.episode.id} has objects 0 to "
                    f"{len(start.episode.objects) - 1}"
                )
            check_sought(self.spec, start.episode)
        for field in self.skill.needs:
            if field == "category":
                continue
            values = goals.joint if field == "marker" else goals.object
            missing = values < 0
            if field == "position":
                missing = np.array([start.goal.position is None for start in starts])
            if missing.any():
                raise UserError(f"goal.{field}: missing; {self.spec.name} needs it")


def checked_actions(actions: Any, count: int) -> np.ndarray:
    """Converts a caller's actions to an array (count, 11) float64.

    Raises:
        UserError: `actions` are not real numbers, or have another shape.
    """
    try:
        given = np.asarray(actions)
    except ValueError:  # rows of different lengths
        raise UserError(f"actions: must be an array of shape ({count}, {act.SIZE})") from None
    if given.dtype.kind not in "fiu":
        raise UserError("actions: must be real numbers")
    if given.shape != (count, act.SIZE):
        raise UserError(f"actions: shape is {given.shape}, expected ({count}, {act.SIZE})")
    return given.astype(np.float64)


def _recall(begun: TaskState, row: int, memory: Mapping[str, np.ndarray]) -> None:
    """Writes the recorded memory of a task into a row of tasks that begin.

    Raises:
        UserError: the memory is of another skill, or damaged.
    """
    own = begun.memory.take([row])
    frozen.check_kinds(memory, frozen.kinds(own.to_arrays()), "memory")
    begun.memory.put([row], own.like(memory))


def _rows(env_ids: Sequence[int]) -> Any:
    """Returns an index for arrays over all homes: for one home a slice, which gives views."""
    return slice(env_ids[0], env_ids[0] + 1) if len(env_ids) == 1 else np.asarray(env_ids)
