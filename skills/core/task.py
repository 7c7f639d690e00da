"""A skill as a task to train: what it keeps between steps, what it looks at, and how it is judged.

Everything here is batch first (leading axis n) and written against the Array API standard, so that
numpy in a worker and torch on a GPU give the same numbers.
"""

import abc
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from array_api_compat import device

from skills.core.conditions import with_success
from skills.core.geometry import array_namespace, constant, object_position
from skills.core.interface import Margin, SkillGoal, SkillThresholds
from skills.core.path_metrics import Path
from tpsrl import config
from tpsrl.errors import UserError, unknown
from tpsrl.world import action as act
from tpsrl.world.state import JOINTS, WorldState

# How an episode fails; the codes of `Outcome.failure` are places in this list.
FAILURES = (
    "",
    "dropped",
    "wrong_object",
    "wrong_drop",
    "wrong_grasp",
    "stopped",
    "force_limit",
)
DROPPED, WRONG_OBJECT, WRONG_DROP, WRONG_GRASP, STOPPED, FORCE_LIMIT = range(1, 7)

PENALTIES = ("slack", "constraint", "force", "force_end")  # of the weights that all skills share

_FORCE_RISE_N = 20.0  # habitat-lab's RobotForce does not count smaller rises


@dataclasses.dataclass(frozen=True, slots=True)
class TaskSettings:
    """Horizon, force limits and the reward's weights that all skills share.

    A weight is positive for a penalty too. Skills add their own; `configs/skill/NAME.yaml` has the
    values. Limits are newtons, None for no limit; what they are held against is said at `step`.
    """

    horizon: int = config.option(300, "control steps until the episode is cut off", minimum=1)
    force_total_n: float | None = config.option(None, "limit on the rises of force", minimum=0)
    force_instant_n: float | None = config.option(None, "limit on the force of a step", minimum=0)
    success: float = config.option(10.0, "reward for success, which ends the episode")
    slack: float = config.option(0.0, "penalty for each step")
    constraint: float = config.option(0.0, "penalty for a step that breaks the hold")
    force: float = config.option(0.0, "penalty for each newton that the force rises")
    force_cap: float = config.option(0.0, "most that a step's rise of force costs")
    force_end: float = config.option(0.0, "penalty for exceeding a limit, which ends the episode")


@dataclasses.dataclass(frozen=True, slots=True)
class Goals:
    """What each home is about: arrays over n homes.

    Object index (n,) and index into JOINTS (n,), -1 for none; goal position (n, 3) in metres, zero
    for none.
    """

    object: Any
    joint: Any
    position: Any

    @staticmethod
    def of(goals: Sequence[SkillGoal]) -> "Goals":
        """The numpy arrays of a list of goals.

        Raises:
            UserError: a marker is unknown; names the nearest.
        """
        for goal in goals:
            if goal.marker and goal.marker not in JOINTS:
                raise unknown("marker", goal.marker, JOINTS)
        return Goals(
            object=np.array([goal.object for goal in goals]),
            joint=np.array([JOINTS.index(g.marker) if g.marker else -1 for g in goals]),
            position=np.array([goal.position or (0.0, 0.0, 0.0) for goal in goals]),
        )


# What is made at every step is not frozen, which would cost three times as much to make.
@dataclasses.dataclass(slots=True)
class TaskState:
    """What a task remembers from step to step; arrays over n homes.

    The first four are the goal and stay; `distance`, `heading`, `rest` and `gap` are the measures
    of `View` after the last step, from which the next step's progress is counted.
    """

    object: Any  # (n,) int, see Goals
    joint: Any  # (n,) int
    position: Any  # (n, 3)
    start: Any  # (n, 3) where the object was at the beginning
    steps: Any  # (n,) int
    distance: Any  # (n,) m
    heading: Any  # (n,) rad
    rest: Any  # (n,) m
    gap: Any  # (n,) m or rad
    rewarded: Any  # (n,) bool, the skill's event (pick, release, grasp) has been
    reached: Any  # (n,) bool, see the skill's `judge`
    force: Any  # (n,) newton, the level from which the next rise is counted
    force_sum: Any  # (n,) newton, rises so far

    @property
    def goals(self) -> Goals:
        """The part that stays."""
        return Goals(self.object, self.joint, self.position)

    def take(self, rows: Any) -> "TaskState":
        """The homes at places `rows` (m,)."""
        return TaskState(*[getattr(self, name)[rows] for name in _FIELDS])

    def put(self, rows: Any, other: "TaskState") -> None:
        """Writes m homes into places `rows` (m,), in place."""
        for name in _FIELDS:
            getattr(self, name)[rows] = getattr(other, name)

    def goal(self, row: int) -> SkillGoal:
        """The goal of one home, as the executor has it."""
        joint = int(self.joint[row])
        x, y, z = (float(value) for value in self.position[row])
        return SkillGoal(int(self.object[row]), (x, y, z), JOINTS[joint] if joint >= 0 else "")

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Plain numpy copies by name, for snapshots and checkpoints."""
        return {name: np.array(getattr(self, name)) for name in _FIELDS}

    @staticmethod
    def from_arrays(arrays: Mapping[str, np.ndarray]) -> "TaskState":
        """The state of `to_arrays`.

        Raises:
            UserError: an array is missing or unknown.
        """
        wrong = set(_FIELDS) ^ set(arrays)
        if wrong:
            raise UserError(f"task state: arrays {', '.join(sorted(wrong))} missing or unknown")
        return TaskState(**{name: np.array(arrays[name]) for name in _FIELDS})

    @staticmethod
    def empty(count: int) -> "TaskState":
        """Numpy arrays for `count` homes, to be written to by `put`."""
        whole = {"object": -1, "joint": -1, "steps": 0}
        flags = ("rewarded", "reached")
        arrays = {name: np.zeros(count) for name in _FIELDS}
        arrays |= {name: np.full(count, value) for name, value in whole.items()}
        arrays |= {name: np.zeros(count, dtype=bool) for name in flags}
        arrays |= {name: np.zeros((count, 3)) for name in ("position", "start")}
        return TaskState(**arrays)


_FIELDS = tuple(field.name for field in dataclasses.fields(TaskState))


@dataclasses.dataclass(slots=True)
class View:
    """A world as a skill sees it; vectors (n, 3) are metres in the frame of the base.

    `subject` is what the cup is to come to (object or handle; for Navigate the goal). What
    `distance` is between is said by each skill's `look`; `heading` is the angle to the goal, left
    positive, `rest` the end effector's distance from its resting point, `gap` what the door or
    drawer lacks. Measures that a skill has no use for are zero.
    """

    ee: Any  # (n, 3)
    subject: Any  # (n, 3)
    goal: Any  # (n, 3)
    to_rest: Any  # (n, 3) from the end effector to its resting point
    distance: Any  # (n,) m
    heading: Any  # (n,) rad
    rest: Any  # (n,) m
    gap: Any  # (n,) m or rad
    holding: Any  # (n,) bool, the cup holds an object or a handle
    velocity: Any  # (n, 3) of the base: forward and left in m/s, turn in rad/s
    path: Path | None = None  # along the floor, for a skill with `follows_path`
    ahead: Any = None  # (n, 3) `PathMeter.ahead`, for a policy that is shown the way
    scan: Any = None  # (n, rays) `Scanner.ranges`, for a policy that is shown them


@dataclasses.dataclass(slots=True)
class Judgement:
    """A skill's own verdict on a step.

    Success (n,) bool, failure code (n,), and of each reward term, by the name of its weight in the
    settings, how much of it there was (n,): metres, radians, or bool for events. "success" counts
    once unless it is among them.
    """

    success: Any
    failure: Any
    amounts: dict[str, Any]
    rewarded: Any  # (n,) bool, see TaskState
    reached: Any  # (n,) bool


class Terms(Mapping[str, Any]):
    """The reward's terms (n,) by name: `amounts` (t, n) times `weights` (t,), when asked for."""

    def __init__(self, names: tuple[str, ...], amounts: Any, weights: Any) -> None:
        self._names, self._amounts, self._weights = names, amounts, weights

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        row = self._names.index(name)
        return self._amounts[row] * self._weights[row]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclasses.dataclass(slots=True)
class Outcome:
    """What came of a step, arrays (n,): the sum of the terms, and how the episode stands.

    `terms` are the reward's, weighed, by name. `failure` are places in `FAILURES`. `terminated` is
    success or failure; `truncated` is the horizon, reached with neither.
    """

    reward: Any
    terms: Mapping[str, Any]
    success: Any
    failure: Any
    terminated: Any
    truncated: Any


class SkillTask(abc.ABC):
    """The definition of a skill, for the executor and for training.

    To write another: name the parts of the action in `parts`, say in `look` what it sees, in
    `judge` how a step is rewarded, in `success_parts` what success is made of, and put the values
    of its settings into `configs/skill/NAME.yaml`.
    """

    name: ClassVar[str]
    settings_type: ClassVar[type[TaskSettings]]
    penalties: ClassVar[tuple[str, ...]] = ()  # the skill's own weights that are taken off
    needs: ClassVar[tuple[str, ...]]  # fields of SkillGoal that must be given
    parts: ClassVar[tuple[int | slice, ...]]  # of the action, that the skill may use
    sensors: ClassVar[tuple[str, ...]]  # habitat-lab's, see `skills.envs.sensors`
    full_sensors: ClassVar[tuple[str, ...]] = ()  # where they are others than all skills have
    follows_path: ClassVar[bool] = False  # whether it is judged by the way along the floor

    def reach_m(self, thresholds: SkillThresholds) -> float | None:
        """For a skill that drives to a position, how near to it in metres the way ends."""
        return None

    def mask(self) -> np.ndarray:
        """(11,) bool: the parts of the action that the skill may use."""
        mask = np.zeros(act.SIZE, dtype=bool)
        for part in self.parts:
            mask[part] = True
        return mask

    @abc.abstractmethod
    def look(
        self, goals: Goals | TaskState, world: WorldState, thresholds: SkillThresholds
    ) -> View:
        """What the skill sees of worlds."""

    @abc.abstractmethod
    def judge(
        self,
        task: TaskState,
        view: View,
        world: WorldState,
        stop: Any,
        settings: Any,
        thresholds: SkillThresholds,
    ) -> Judgement:
        """Rewards and verdict of the step from `task` to `view`; `stop` (n,) bool was called."""

    @abc.abstractmethod
    def success_parts(
        self,
        goal: SkillGoal,
        view: View,
        world: WorldState,
        stop: bool,
        thresholds: SkillThresholds,
    ) -> dict[str, Margin]:
        """The parts of success of a batch of one, by name."""

    def begun(self, view: View) -> Any:
        """Whether the event that is rewarded once is over at the start (n,) bool."""
        return view.holding

    def results(
        self,
        goal: SkillGoal,
        world: WorldState,
        stop: bool,
        thresholds: SkillThresholds,
        path: Path | None = None,
    ) -> dict[str, Margin]:
        """Named results for a batch of one; "success" is among them, the others are its parts."""
        view = self.look(Goals.of([goal]), world, thresholds)
        view.path = path
        return with_success(self.success_parts(goal, view, world, stop, thresholds))

    def failure(self, goal: SkillGoal, world: WorldState, thresholds: SkillThresholds) -> str:
        """Why the skill can no longer succeed, judged from one world, or ""."""
        return ""


def begin(
    skill: SkillTask, goals: Goals, world: WorldState, thresholds: SkillThresholds
) -> TaskState:
    """The state of tasks that begin in these worlds."""
    xp = array_namespace(world.base)
    view = skill.look(goals, world, thresholds)
    none = xp.zeros_like(world.step)
    never = xp.zeros_like(world.violation)
    return TaskState(
        object=goals.object,
        joint=goals.joint,
        position=goals.position,
        start=object_position(goals.object, world),
        steps=none,
        distance=view.distance,
        heading=view.heading,
        rest=view.rest,
        gap=view.gap,
        rewarded=skill.begun(view),
        reached=never,
        force=world.force,
        force_sum=xp.zeros_like(world.force),
    )


def step(
    skill: SkillTask,
    task: TaskState,
    actions: Any,
    world: WorldState,
    settings: TaskSettings,
    thresholds: SkillThresholds,
    path: Path | None = None,
) -> tuple[TaskState, View, Outcome]:
    """Judges the control step that led to `world` under masked actions (n, 11).

    A skill with `follows_path` needs the path along the floor, as it is after the step.

    Force is counted as habitat-lab's RobotForce does: the rises of the step's force by more than
    20 N are summed, and the sum is held against `force_total_n`, the force itself against
    `force_instant_n`.
    """
    xp = array_namespace(world.base)
    view = skill.look(task, world, thresholds)
    view.path = path
    stop = actions[:, act.STOP] > 0
    verdict = skill.judge(task, view, world, stop, settings, thresholds)
    success, failure = verdict.success, verdict.failure

    change = world.force - task.force
    rises = change > _FORCE_RISE_N
    rise = xp.where(rises, change, 0.0)
    level = xp.where(rises | (change < 0.0), world.force, task.force)
    force_sum = task.force_sum + rise
    too_much = _too_much(world.force, force_sum, settings)

    steps = task.steps + 1
    amounts = {"success": success, **verdict.amounts}
    amounts["slack"] = steps > 0
    amounts["constraint"] = world.violation
    if settings.force > 0.0:
        most = settings.force_cap / settings.force
        amounts["force"] = xp.minimum(rise, constant((most,), rise))
    if too_much is not None:
        amounts["force_end"] = too_much
        failure = xp.where(too_much & ~success, FORCE_LIMIT, failure)
    names = tuple(amounts)
    weights = constant(_weights(skill, settings, names), rise)
    amount = xp.reshape(xp.concat(tuple(amounts.values())), (len(names), -1))
    reward = weights @ amount

    terminated = success | (failure > 0)
    truncated = (steps >= settings.horizon) & ~terminated
    after = TaskState(
        object=task.object,
        joint=task.joint,
        position=task.position,
        start=task.start,
        steps=steps,
        distance=view.distance,
        heading=view.heading,
        rest=view.rest,
        gap=view.gap,
        rewarded=verdict.rewarded,
        reached=verdict.reached,
        force=level,
        force_sum=force_sum,
    )
    terms = Terms(names, amount, weights)
    return after, view, Outcome(reward, terms, success, failure, terminated, truncated)


@functools.cache
def _weights(skill: SkillTask, settings: TaskSettings, names: tuple[str, ...]) -> tuple[float, ...]:
    """The weights of reward terms, negative for penalties."""
    penalties = (*PENALTIES, *skill.penalties)
    return tuple(getattr(settings, name) * (-1 if name in penalties else 1) for name in names)


def rounded(xp: Any, metres: Any) -> Any:
    """To whole millimetres, as habitat-lab does against jitter."""
    return xp.round(1000.0 * metres) / 1000.0


def _too_much(force: Any, force_sum: Any, settings: TaskSettings) -> Any:
    """Whether a limit on force is exceeded (n,) bool, None when there is none."""
    total, instant = settings.force_total_n, settings.force_instant_n
    if total is None:
        return None if instant is None else force > instant
    return force_sum > total if instant is None else (force_sum > total) | (force > instant)


def masked(actions: Any, mask: np.ndarray, held: Any) -> Any:
    """Actions (n, 11) with the parts that a skill may not use at their neutral values.

    `mask` (11,) bool is numpy; `held` (n,) are the indices of the held objects, -1 for none.

    Arm and base stand still, stop is not called, and the grip keeps an object that it holds and is
    open otherwise, as in the executor.
    """
    xp = array_namespace(actions)
    allowed = mask if type(actions) is np.ndarray else xp.asarray(mask, device=device(actions))
    result = xp.where(allowed, actions, 0.0)
    if not mask[act.GRIP]:
        result[:, act.GRIP] = xp.where(held >= 0, 1.0, 0.0 * result[:, act.GRIP] - 1.0)
    if not mask[act.STOP]:
        result[:, act.STOP] = -1.0
    return result
