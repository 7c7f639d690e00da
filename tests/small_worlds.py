"""Small worlds for which rewards and success are computed by hand."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from kinematic_home import make_episode

from planner.problem import start_world
from skills import registry
from skills.core import task
from skills.core.conditions import Margin, margins
from skills.core.interface import SkillGoal
from skills.core.path_metrics import PathProgress
from skills.core.settings import changed
from skills.core.state import Goals, TaskState
from skills.core.task import StepOutcome, Verdict
from tpsrl.world import action as act
from tpsrl.world.state import JOINTS, WorldState

FRIDGE, DRAWER = 0, JOINTS.index("cab_push_point_5")


def world(**changes: object) -> WorldState:
    """Returns a world with the robot at (1, 2) facing +y and the cup at rest.

    It has two objects, and all handles are at (1, 3, 1).
    """
    state = start_world(make_episode(2, 1, robot_start=(1.0, 2.0, math.pi / 2)))
    fields = {name: getattr(state, name) for name in WorldState.__slots__}
    fields["arm"] = np.zeros((1, 7))
    fields["ee_pos"] = np.array([[1.0, 2.5, 1.0]])
    fields["ee_quat"] = np.array([[1.0, 0.0, 0.0, 0.0]])
    fields["marker_pos"] = np.tile([1.0, 3.0, 1.0], (1, len(JOINTS), 1))
    return WorldState(**{**fields, **changes})


def cup_at(x: float, y: float, z: float, **changes: object) -> WorldState:
    """Returns the same world with the cup at a point."""
    return world(ee_pos=np.array([[x, y, z]]), **changes)


def opened(joint: int, value: float, **changes: object) -> WorldState:
    """Returns the same world with a door or drawer at a joint position."""
    joints = np.zeros((1, len(JOINTS)))
    joints[0, joint] = value
    return world(joints=joints, **changes)


def run(
    skill: str, goal: SkillGoal, *worlds: WorldState, stop: bool = False, **settings: object
) -> tuple[TaskState, StepOutcome]:
    """Returns the task's state and outcome after the steps from the first world to the last.

    With `stop` the last action calls stop.
    """
    spec = registry.get(skill)
    definition, chosen = spec.definition, changed(spec.load_settings(), settings)
    state = task.begin(definition, Goals.of([goal]), worlds[0], spec.thresholds)
    for number, after in enumerate(worlds[1:], start=2):
        action = np.zeros((1, act.SIZE))
        action[0, act.STOP] = 1.0 if stop and number == len(worlds) else -1.0
        state, _, outcome = task.step(definition, state, action, after, chosen, spec.thresholds)
    return state, outcome


def judged(
    skill: str,
    goal: SkillGoal,
    *worlds: WorldState,
    stop: bool = False,
    thresholds: Any = None,
    **settings: object,
) -> Verdict:
    """Returns the verdict on the step into the last of the given worlds, of one home.

    The skill begins in the first world; with a single world the step is one without motion.
    """
    spec = registry.get(skill)
    definition, chosen = spec.definition, changed(spec.load_settings(), settings)
    thresholds = spec.thresholds if thresholds is None else thresholds
    state = task.begin(definition, Goals.of([goal]), worlds[0], thresholds)
    for after in worlds[1:] or worlds:
        stopped = np.array([stop])
        verdict = task.evaluate(definition, state, after, stopped, chosen, thresholds)
        state.memory = verdict.evaluation.memory
    return verdict


def results(
    skill: str, goal: SkillGoal, world: WorldState, stop: bool = False, thresholds: Any = None
) -> dict[str, Margin]:
    """Returns the conditions of success of one home, the first of which is "success"."""
    return margins(judged(skill, goal, world, stop=stop, thresholds=thresholds).conditions)


def failure(skill: str, goal: SkillGoal, *worlds: WorldState, **settings: object) -> str:
    """Returns how a skill failed in the step into the last of the worlds, "" if it did not."""
    code = judged(skill, goal, *worlds, **settings).evaluation.failure[0]
    return registry.get(skill).definition.failures[code]


def random_worlds(rng: np.random.Generator, count: int) -> WorldState:
    """Returns random worlds that cover every case of every skill."""
    near = rng.normal(0.0, 0.1, (count, 3))
    ee = rng.uniform([-1, -1, 0.5], [1, 1, 1.2], (count, 3))
    base = np.concatenate([ee[:, :2], rng.uniform(-4, 4, (count, 1))], axis=1)
    base[:, 0] -= 0.5 * np.cos(base[:, 2])
    base[:, 1] -= 0.5 * np.sin(base[:, 2])
    ee[: count // 2, 2] = 1.0
    held = rng.integers(-1, 3, count)
    quat = rng.normal(size=(count, 4))
    objects = rng.uniform(-1, 1, (count, 4, 3))
    objects[:, 0] = ee + near
    return WorldState(
        base=base,
        base_velocity=rng.normal(size=(count, 3)),
        arm=rng.normal(size=(count, 7)),
        ee_pos=ee,
        ee_quat=quat / np.linalg.norm(quat, axis=1, keepdims=True),
        object_pos=objects,
        object_quat=rng.normal(size=(count, 4, 4)),
        held=held,
        held_joint=np.where(held < 0, rng.integers(-1, 3, count), -1),
        joints=rng.uniform(0.0, 1.0, (count, 5)) * rng.choice([0.05, 0.5, 1.5], (count, 1)),
        marker_pos=rng.uniform(-1, 1, (count, 5, 3)),
        force=rng.choice([0.0, 15.0, 50.0, 12000.0], count),
        force_total=rng.uniform(0, 100, count),
        violation=rng.random(count) < 0.1,
        step=np.arange(count),
    )


def random_goals(rng: np.random.Generator, worlds: WorldState) -> Goals:
    """Returns random goals, some of which are reached."""
    count = len(worlds.force)
    return Goals(
        object=rng.integers(0, 2, count),
        joint=rng.integers(0, 3, count),
        position=worlds.object_pos[:, 0] + rng.normal(0.0, 0.1, (count, 3)),
        grasp=np.zeros((count, 2, 3)),
    )


def random_path(rng: np.random.Generator, count: int) -> PathProgress:
    """Returns random progress along floor paths, some of it at the end or at the far limit."""
    floor = np.random.default_rng(count)
    return PathProgress(
        shortest=rng.uniform(1, 8, count),
        left=rng.uniform(0, 0.5, count),
        gained=rng.normal(size=count),
        driven=rng.uniform(1, 9, count),
        farthest=floor.uniform(0.3, 1.0, count),
        squares=floor.integers(1, 4, count).astype(float),
    )


def mapped(struct: Any, change: Callable[[Any], Any]) -> Any:
    """Returns a struct of arrays, possibly nested, with every array changed."""
    values = (getattr(struct, field.name) for field in dataclasses.fields(struct))
    return type(struct)(
        *(
            v if v is None else mapped(v, change) if dataclasses.is_dataclass(v) else change(v)
            for v in values
        )
    )


def rows(struct: Any, index: Any) -> Any:
    """Returns some rows of every array of a struct."""
    return mapped(struct, lambda array: array[index])


def to_torch(struct: Any) -> Any:
    """Returns a struct of arrays with tensors instead."""
    import torch

    return mapped(struct, torch.asarray)


def arrays_of(struct: Any, prefix: str = "") -> dict[str, Any]:
    """Returns the arrays of a struct, unchanged, by dotted name."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(struct):
        value = getattr(struct, field.name)
        if dataclasses.is_dataclass(value):
            found |= arrays_of(value, f"{prefix}{field.name}.")
        else:
            found[prefix + field.name] = value
    return found
