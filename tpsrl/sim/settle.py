"""Settling of drafted episodes: objects come to rest in a simulator, or the draft is rejected."""

import dataclasses
from typing import Any

import numpy as np

from tpsrl.sim.base import Overlap, Simulator
from tpsrl.world import action as act
from tpsrl.world.episode import Episode, ObjectPlacement
from tpsrl.world.geometry import quat_matrix
from tpsrl.world.state import WorldState

_BASE_M, _ARM_RAD = 0.005, 0.01
_JOINT = 0.005  # rad of a door, m of a drawer


@dataclasses.dataclass(frozen=True, slots=True)
class Tolerance:
    """Limits within which objects count as at rest where they were placed.

    After `steps` control steps no object may be more than `moved_m` from its placed position or
    tilted by more than `tilt_rad` from upright (infinite: it may lie), and the last step may move
    no object by more than `last_m`.
    """

    steps: int
    moved_m: float
    tilt_rad: float
    last_m: float


STRICT = Tolerance(60, 0.01, float(np.radians(3.0)), 1e-4)
# habitat-lab's generator simulates five seconds, and rejects an episode only if an object has moved
# 0.1 m (`settle_sim` in rearrange_generator.py).
HABITAT = Tolerance(150, 0.1, np.inf, 1e-3)


def settle(simulator: Simulator, draft: Episode, tolerance: Tolerance = STRICT) -> Episode | str:
    """Returns the episode with all objects at rest, or a short reason for its rejection.

    First the objects settle at their starts, then the targets at their goals with the other
    objects in place, so a goal is the centre of the object at rest there. Uses home 0 of the
    simulator.
    """
    started = settle_starts(simulator, draft, tolerance)
    if isinstance(started, str):
        return f"start: {started}"
    settled = settle_goals(simulator, started, tolerance)
    return f"goal: {settled}" if isinstance(settled, str) else settled


def settle_starts(simulator: Simulator, draft: Episode, tolerance: Tolerance) -> Episode | str:
    """Returns the episode with its objects at rest at their starts, or a reason for rejection."""
    state = _rest(simulator, draft, tolerance)
    if isinstance(state, str):
        return state
    poses = zip(draft.objects, state.object_pos[0], state.object_quat[0], strict=False)
    objects = tuple(
        dataclasses.replace(o, pos=_rounded(pos), quat=_rounded(quat)) for o, pos, quat in poses
    )
    return dataclasses.replace(draft, objects=objects)


def settle_goals(simulator: Simulator, episode: Episode, tolerance: Tolerance) -> Episode | str:
    """Returns the episode with goals where its targets come to rest, or a reason for rejection."""
    moved = list(episode.objects)
    for target in episode.targets:
        moved[target.object] = dataclasses.replace(moved[target.object], pos=target.goal)
    state = _rest(simulator, dataclasses.replace(episode, objects=tuple(moved)), tolerance)
    if isinstance(state, str):
        return state
    targets = tuple(
        dataclasses.replace(t, goal=_rounded(state.object_pos[0, t.object]))
        for t in episode.targets
    )
    return dataclasses.replace(episode, targets=targets)


def _rest(simulator: Simulator, episode: Episode, tolerance: Tolerance) -> WorldState | str:
    """Returns the state after `tolerance.steps` idle control steps, or a reason for rejection."""
    try:
        simulator.reset([0], [episode])
    except Overlap as error:
        return f"overlap ({error.what})"
    idle = np.zeros((1, act.SIZE))
    idle[0, act.GRIP] = -1.0
    before = simulator.state([0])
    for _ in range(tolerance.steps - 1):
        simulator.step([0], idle)
    almost = simulator.state([0])
    simulator.step([0], idle)
    return _complaint(episode.objects, before, almost, simulator.state([0]), tolerance)


def _complaint(
    objects: tuple[ObjectPlacement, ...],
    before: WorldState,
    almost: WorldState,
    state: WorldState,
    tolerance: Tolerance,
) -> WorldState | str:
    count = len(objects)
    pos = state.object_pos[0, :count]
    placed = np.array([o.pos for o in objects])
    upright = quat_matrix(state.object_quat[0, :count])[:, 2, 2]
    for values, limit, what in (
        (np.linalg.norm(pos - placed, axis=1), tolerance.moved_m, "moved"),
        (np.arccos(np.clip(upright, -1.0, 1.0)), tolerance.tilt_rad, "tilted"),
        (
            np.linalg.norm(pos - almost.object_pos[0, :count], axis=1),
            tolerance.last_m,
            "did not come to rest",
        ),
    ):
        if values.max() > limit:
            index = int(values.argmax())
            return f"an object {what} (objects[{index}], {objects[index].name})"
    if float(state.force_total[0]) > 0.0:
        return "the robot touches something"
    if np.abs(state.base - before.base).max() > _BASE_M:
        return "the base was pushed"
    if np.abs(state.arm - before.arm).max() > _ARM_RAD:
        return "the arm was pushed"
    if np.abs(state.joints - before.joints).max() > _JOINT:
        return "a door or drawer moved"
    return state


def _rounded(values: np.ndarray) -> Any:
    """Rounds to six decimals (micrometres); more would depend on the machine's rounding."""
    return tuple(round(float(v), 6) for v in values)
