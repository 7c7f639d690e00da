"""Task of a skill: its start, and the evaluation and reward of a step.

All arrays have a leading batch axis n, numpy or torch. Training uses `step`; the executor, which
needs no reward, uses `evaluate` with a batch of one.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping

import numpy as np
from array_api_compat import device

from skills.core.arrays import Array, ArrayT
from skills.core.conditions import Conditions, conjunction
from skills.core.context import MeasureContext, StartContext, StepContext, ThresholdsT
from skills.core.geometry import Constant, array_namespace, in_each, length
from skills.core.measures import Measures, MeasuresT, MemoryT
from skills.core.path_metrics import PathProgress
from skills.core.settings import PENALTIES, SettingsT, TaskSettings
from skills.core.skill import FORCE_LIMIT, STOPPED, Evaluation, Grip, Skill
from skills.core.state import Goals, TaskState
from tpsrl.world import action as act
from tpsrl.world.state import JOINTS, WorldState


class RewardTerms(Mapping[str, Array]):
    """Reward terms (n,) by name: `amounts` (t, n) times `weights` (t,), computed on access."""

    def __init__(self, names: tuple[str, ...], amounts: Array, weights: Array) -> None:
        self._names, self._amounts, self._weights = names, amounts, weights

    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise KeyError(name)
        row = self._names.index(name)
        return self._amounts[row] * self._weights[row]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclasses.dataclass(slots=True)
class Verdict:
    """Measures, conditions of success, and evaluation of tasks after a step."""

    measures: Measures
    conditions: Conditions
    success: Array  # (n,) bool, all conditions hold
    evaluation: Evaluation


@dataclasses.dataclass(slots=True)
class StepOutcome:
    """Reward and status of episodes after a step, arrays (n,)."""

    reward: Array  # sum of the terms
    reward_terms: Mapping[str, Array]  # weighted, by name
    success: Array  # bool
    failure: Array  # int, indices into `Skill.failures`
    terminated: Array  # bool, success or failure
    truncated: Array  # bool, the horizon is reached without success or failure
    conditions: Conditions  # of success


def begin(
    skill: Skill[SettingsT, ThresholdsT, MeasuresT, MemoryT],
    goals: Goals,
    world: WorldState,
    thresholds: ThresholdsT,
) -> TaskState:
    """Returns the state of tasks that begin in `world`."""
    xp = array_namespace(world.base)
    measures = skill.measure(MeasureContext(goals, world, thresholds))
    return TaskState(
        object=goals.object,
        joint=goals.joint,
        position=goals.position,
        grasp=goals.grasp,
        steps=xp.zeros_like(world.step),
        force_total=world.force_total,
        force_sum=xp.zeros_like(world.force),
        joints=world.joints,
        memory=skill.remember(StartContext(goals, world, thresholds, measures)),
    )


def evaluate(
    skill: Skill[SettingsT, ThresholdsT, MeasuresT, MemoryT],
    task: TaskState[MemoryT],
    world: WorldState,
    stop: Array,
    settings: SettingsT,
    thresholds: ThresholdsT,
    path: PathProgress | None = None,
) -> Verdict:
    """Evaluates the control step that led to `world`, without reward.

    Args:
        skill: definition of the skill
        task: state of the tasks before the step
        world: world after the step
        stop: (n,) bool, whether stop was called in the step
        settings: task settings of the skill
        thresholds: success thresholds of the skill
        path: path along the floor after the step, required for a skill with `follows_path`
    """
    context = _context(skill, task, world, stop, settings, thresholds, path)
    conditions = skill.conditions(context)
    success = conjunction(conditions)
    return Verdict(context.measures, conditions, success, skill.evaluate(context, success))


def _context(
    skill: Skill[SettingsT, ThresholdsT, MeasuresT, MemoryT],
    task: TaskState[MemoryT],
    world: WorldState,
    stop: Array,
    settings: SettingsT,
    thresholds: ThresholdsT,
    path: PathProgress | None,
    gaps: Array | None = None,
) -> StepContext[SettingsT, ThresholdsT, MeasuresT, MemoryT]:
    """Measures the world and returns the context of the step."""
    measures = skill.measure(MeasureContext(task, world, thresholds))
    # Positional, since keyword arguments would take three times as long.
    return StepContext(
        task, world, thresholds, measures, task.memory, task.steps, stop, settings, path, gaps
    )


_PUSHED = 0.002  # m or rad in a step; joints and objects at rest jitter by less
_BESIDE_M = 0.05  # from the cup; twice its radius
_JOINTS = Constant(tuple(range(len(JOINTS))))
_LEVERS = Constant((1.0, 1.0, 0.5))  # weights of the base's velocity (x, y, yaw), the last in m


def step(
    skill: Skill[SettingsT, ThresholdsT, MeasuresT, MemoryT],
    task: TaskState[MemoryT],
    actions: Array,
    world: WorldState,
    settings: SettingsT,
    thresholds: ThresholdsT,
    path: PathProgress | None = None,
    object_pos: Array | None = None,
    gaps: Array | None = None,
) -> tuple[TaskState, MeasuresT, StepOutcome]:
    """Evaluates and rewards the control step that led to `world`.

    The limit `force_total_n` applies to the sum of the increases of force
    (`WorldState.force_total`) since the task began, `force_instant_n` to the force of the step.

    Args:
        skill: definition of the skill
        task: state of the tasks before the step
        actions: (n, 11) masked actions of the step
        world: world after the step
        settings: task settings of the skill
        thresholds: success thresholds of the skill
        path: path along the floor after the step, required for a skill with `follows_path`; None
            omits the terms `way` and `hand`
        object_pos: (n, S, 3) positions of objects before the step; None omits the term `clutter`
        gaps: (n, 2) distances of the cup after the step, see `StepContext`; None omits the term
            `near`

    Returns:
        State of the tasks after the step, measures of `world`, and outcome.
    """
    xp = array_namespace(world.base)
    stop = actions[:, act.STOP] > 0
    # As in `evaluate`, without the cost of a `Verdict`, which is not needed here.
    context = _context(skill, task, world, stop, settings, thresholds, path, gaps)
    conditions = skill.conditions(context)
    success = conjunction(conditions)
    found = skill.evaluate(context, success)
    failure = found.failure

    rules = _rules(skill, settings)
    rise = world.force_total - task.force_total
    force_sum = task.force_sum + rise
    too_much = _too_much(world.force, force_sum, settings)

    steps = task.steps + 1
    amounts = {"success": success, **found.amounts}
    amounts["slack"] = in_each(steps)
    amounts["constraint"] = world.violation
    if settings.force > 0.0:
        amounts["force"] = xp.minimum(rise, rules.most_force.like(rise))
    if too_much is not None:
        amounts["force_end"] = too_much
        failure = xp.where(too_much & ~success, FORCE_LIMIT, failure)
    if settings.way != 0.0 and path is not None:
        amounts["way"] = xp.where(skill.seeks(context), path.gained, 0.0)
    if settings.hand != 0.0 and path is not None and path.hand is not None:
        amounts["hand"] = xp.where(skill.seeks(context), path.hand, 0.0)
    if settings.speed > 0.0:
        velocity = world.base_velocity * _LEVERS.like(world.base_velocity)
        amounts["speed"] = xp.sum(velocity * velocity, axis=-1)
    if settings.joints > 0.0:
        amounts["joints"] = _pushed(task, world)
    if settings.clutter > 0.0 and object_pos is not None:
        # An object that is still to be picked should not be pushed either.
        own = xp.where(skill.seeks(context) & (world.held < 0), -1, task.object)
        amounts["clutter"] = _knocked(own, object_pos, world.object_pos)
    if settings.near > 0.0 and gaps is not None:
        depth = xp.clip(_BESIDE_M - gaps[:, 1], 0.0, _BESIDE_M)
        amounts["near"] = xp.where(skill.seeks(context), depth, 0.0)
    if settings.grip > 0.0:
        closed = actions[:, act.GRIP] >= 0.0
        amounts["grip"] = closed & skill.should_be_open(context)
    if settings.wrong_stop > 0.0:
        amounts["wrong_stop"] = failure == STOPPED
    names = tuple(amounts)
    weights = rules.weights(names).like(rise)
    # The method is four times faster than the namespace's function, and every library has it.
    amount = xp.concat(tuple(amounts.values())).reshape((len(names), -1))
    reward = weights @ amount

    terminated = success | (failure > 0)
    truncated = (steps >= settings.horizon) & ~terminated
    after = TaskState(
        object=task.object,
        joint=task.joint,
        position=task.position,
        grasp=task.grasp,
        steps=steps,
        force_total=world.force_total,
        force_sum=force_sum,
        joints=world.joints,
        memory=found.memory,
    )
    terms = RewardTerms(names, amount, weights)
    outcome = StepOutcome(reward, terms, success, failure, terminated, truncated, conditions)
    return after, context.measures, outcome


class _Rules:
    """Weights and the force cap of a skill's reward, created once for its settings."""

    def __init__(self, skill: Skill, settings: TaskSettings) -> None:
        self._penalties = (*PENALTIES, *skill.penalties)
        self._settings = settings
        self._weights: dict[tuple[str, ...], Constant] = {}
        # Increase of force (1,) in newtons beyond which the penalty is capped.
        most = settings.force_cap / settings.force if settings.force > 0.0 else 0.0
        self.most_force = Constant((most,))

    def weights(self, names: tuple[str, ...]) -> Constant:
        """Returns the weights (t,) of reward terms, negative for penalties."""
        made = self._weights.get(names)
        if made is None:
            made = self._weights[names] = Constant(tuple(map(self._weight, names)))
        return made

    def _weight(self, name: str) -> float:
        weight: float = getattr(self._settings, name)
        return -weight if name in self._penalties else weight


_rules = functools.cache(_Rules)


def _pushed(task: TaskState, world: WorldState) -> Array:
    """Returns the summed motion (n,) of drawers and doors in a step, without the task's own."""
    xp = array_namespace(world.joints)
    own = _JOINTS.like(task.joint) == task.joint[:, None]
    moved = xp.sum(xp.where(own, 0.0, xp.abs(world.joints - task.joints)), axis=1)
    return xp.where(moved > _PUSHED, moved, 0.0)


def _knocked(own: Array, before: Array, after: Array) -> Array:
    """Returns the summed motion (n,) in metres of loose objects in a step, except for one.

    Args:
        own: (n,) index of the object that may move, -1 for none
        before: (n, S, 3) positions before the step
        after: (n, S, 3) positions after the step
    """
    xp = array_namespace(after)
    moved = length(after - before)  # NaN where there is no object
    places = xp.arange(moved.shape[-1], device=device(moved))
    return xp.sum(xp.where((places != own[:, None]) & (moved > _PUSHED), moved, 0.0), axis=-1)


def _too_much(force: Array, force_sum: Array, settings: TaskSettings) -> Array | None:
    """Returns whether a force limit is exceeded, (n,) bool, or None if there are no limits."""
    total, instant = settings.force_total_n, settings.force_instant_n
    if total is None:
        return None if instant is None else force > instant
    return force_sum > total if instant is None else (force_sum > total) | (force > instant)


_mask = functools.cache(Constant)  # copied to a device once


def masked(
    actions: ArrayT, mask: np.ndarray, held: Array, held_joint: Array, grip: Grip = "free"
) -> ArrayT:
    """Sets the parts of actions that a skill may not use to neutral values.

    The neutral values are those of the executor: arm and base stand still, stop is not called, and
    the grip keeps an object that it holds and is open otherwise.

    Args:
        actions: (n, 11)
        mask: (11,) bool, numpy; True for the parts that the skill may use
        held: (n,) object in the cup before the step, -1 for none
        held_joint: (n,) joint whose handle is in the cup before the step, -1 for none
        grip: the skill's restriction of the grip

    Returns:
        New actions (n, 11).
    """
    xp = array_namespace(actions)
    numpy = type(actions) is np.ndarray
    allowed = mask if numpy else _mask(tuple(mask.tolist())).like(actions) > 0
    result = xp.where(allowed, actions, 0.0)
    if not mask[act.GRIP]:
        result[:, act.GRIP] = xp.where(held >= 0, 1.0, 0.0 * result[:, act.GRIP] - 1.0)
    elif grip != "free":
        holding = (held >= 0) | (held_joint >= 0)
        fixed, at = (holding, 1.0) if grip == "keep" else (~holding, -1.0)
        result[:, act.GRIP] = xp.where(fixed, at, result[:, act.GRIP])
    if not mask[act.STOP]:
        result[:, act.STOP] = -1.0
    return result
