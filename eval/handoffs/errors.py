"""Errors of the state at a handoff, compared with the state that suits the next skill best."""

import math
from collections.abc import Mapping

import numpy as np

from skills.core.geometry import rest_distance
from skills.core.interface import SkillGoal
from tpsrl.sim.base import Simulator
from tpsrl.world.episode import Episode
from tpsrl.world.geometry import quat_matrix
from tpsrl.world.objects import object_kind
from tpsrl.world.state import JOINTS, WorldState

UNITS = {
    "distance": "m",
    "heading": "rad",
    "arm_rest": "m",
    "slip": "m",
    "articulation": "of its range",
    "view_blocked": "share",
}
_NEAR_M = 0.4  # as in `eval.running.view`: nearer surfaces block the view
_SIDE, _DEPTH_M = 64, 10.0


def handoff_errors(
    simulator: Simulator,
    env_id: int,
    episode: Episode,
    world: WorldState,
    goal: SkillGoal,
    opened: Mapping[str, float],
) -> dict[str, float]:
    """Returns the errors of a world of batch one at a handoff, as far as they are defined there.

    Args:
        simulator: of the home
        env_id: of the home
        episode: that is run
        world: state of the home
        goal: of the next skill
        opened: expected opening (rad, m) of the doors and drawers that the plan has opened

    Returns:
        "distance" (m, along the floor) and "heading" (rad) from the base to the target of the
        skill; "arm_rest" (m) from the cup to its resting place; with an object in the hand "slip"
        (m), the offset of its centre from where it is when it hangs centred from the cup, and
        "view_blocked", the share of the head camera's image that is nearer than 0.4 m;
        "articulation", the largest shortfall of the opened joints, as a share of their expected
        opening.
    """
    errors = {"arm_rest": float(rest_distance(world.base, world.ee_pos)[0])}
    position = goal.position
    if position is None and goal.object >= 0:
        position = tuple(world.object_pos[0, goal.object].tolist())
    if position is None and goal.marker:
        position = tuple(world.marker_pos[0, JOINTS.index(goal.marker)].tolist())
    if position is not None:
        x, y, yaw = world.base[0]
        dx, dy = position[0] - x, position[1] - y
        turn = math.atan2(dy, dx) - yaw
        errors["distance"] = math.hypot(dx, dy)
        errors["heading"] = abs(math.atan2(math.sin(turn), math.cos(turn)))
    held = int(world.held[0])
    if held >= 0:
        errors["slip"] = _slip(episode, world, held)
        depth = simulator.depth([env_id], _SIDE, _SIDE)[0]
        errors["view_blocked"] = float(np.mean(depth * _DEPTH_M < _NEAR_M))
    if opened:
        errors["articulation"] = max(
            max(0.0, value - float(world.joints[0, JOINTS.index(marker)])) / value
            for marker, value in opened.items()
        )
    return errors


def _slip(episode: Episode, world: WorldState, held: int) -> float:
    """Returns the offset (m) of a held object's centre from its ideal position.

    The ideal position is on the cup's axis, at half the height of the object.
    """
    kind = object_kind(episode.objects[held].name)
    axis = quat_matrix(world.ee_quat[0])[:, 0]
    wanted = world.ee_pos[0] + axis * kind.half[2]
    return float(np.linalg.norm(world.object_pos[0, held] - wanted))
