"""Lets drafted episodes come to rest in a simulator, and refuses those that do not."""

import dataclasses
from typing import Any

import numpy as np

from tpsrl.errors import UserError
from tpsrl.sim.base import Simulator
from tpsrl.world import action as act
from tpsrl.world.episode import Episode, ObjectPlacement
from tpsrl.world.geometry import quat_matrix
from tpsrl.world.state import WorldState

_STEPS = 60
_MOVED_M = 0.01
_SPEED_M = 1e-4  # between the last two control steps
_TILT_COS = np.cos(np.radians(3.0))
_BASE_M, _ARM_RAD = 0.005, 0.01
_JOINT = 0.005  # rad of a door, m of a drawer


def settle(simulator: Simulator, draft: Episode) -> Episode | str:
    """The episode with everything at rest, or what is wrong with it in a few words.

    Objects settle at their starts, then the targets at their goals with the rest in place, so a
    goal is the centre of the object standing there. Home 0 of the simulator is used.
    """
    state = _rest(simulator, draft)
    if isinstance(state, str):
        return f"start: {state}"
    objects = tuple(
        dataclasses.replace(o, pos=_rounded(pos), quat=_rounded(quat))
        for o, pos, quat in zip(
            draft.objects, state.object_pos[0], state.object_quat[0], strict=False
        )
    )
    moved = list(objects)
    for target in draft.targets:
        moved[target.object] = dataclasses.replace(moved[target.object], pos=target.goal)
    state = _rest(simulator, dataclasses.replace(draft, objects=tuple(moved)))
    if isinstance(state, str):
        return f"goal: {state}"
    targets = tuple(
        dataclasses.replace(t, goal=_rounded(state.object_pos[0, t.object])) for t in draft.targets
    )
    return dataclasses.replace(draft, objects=objects, targets=targets)


def _rest(simulator: Simulator, episode: Episode) -> WorldState | str:
    """The state after a while without action, or what went wrong until then."""
    try:
        simulator.reset([0], [episode])
    except UserError:
        return "overlap"
    idle = np.zeros((1, act.SIZE))
    idle[0, act.GRIP] = -1.0
    before = simulator.state([0])
    for _ in range(_STEPS - 1):
        simulator.step([0], idle)
    almost = simulator.state([0])
    simulator.step([0], idle)
    return _complaint(episode.objects, before, almost, simulator.state([0]))


def _complaint(
    objects: tuple[ObjectPlacement, ...], before: WorldState, almost: WorldState, state: WorldState
) -> WorldState | str:
    count = len(objects)
    pos = state.object_pos[0, :count]
    placed = np.array([o.pos for o in objects])
    if np.linalg.norm(pos - placed, axis=1).max() > _MOVED_M:
        return "an object moved"
    if quat_matrix(state.object_quat[0, :count])[:, 2, 2].min() < _TILT_COS:
        return "an object tilted"
    if np.linalg.norm(pos - almost.object_pos[0, :count], axis=1).max() > _SPEED_M:
        return "an object did not come to rest"
    if float(state.force_total[0]) > 0.0:
        return "something is struck"
    if np.abs(state.base - before.base).max() > _BASE_M:
        return "the base was pushed"
    if np.abs(state.arm - before.arm).max() > _ARM_RAD:
        return "the arm was pushed"
    if np.abs(state.joints - before.joints).max() > _JOINT:
        return "a door or drawer moved"
    return state


def _rounded(values: np.ndarray) -> Any:
    """Micrometres: more would make episodes depend on a machine's rounding."""
    return tuple(round(float(v), 6) for v in values)
