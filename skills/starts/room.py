"""Collision-free base poses in which a robot can start in an episode's home."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from skills.core.interface import Grasp, SkillGoal
from skills.starts.start import Start
from tpsrl.world.collision import (
    ARM_SPHERES,
    REST,
    ArmChecker,
    Spheres,
    held_spheres,
    object_bodies,
)
from tpsrl.world.doors import joints_at
from tpsrl.world.episode import Episode
from tpsrl.world.fetch import BASE_RADIUS, CUP, GRIPPER
from tpsrl.world.floor import ABSENT, CELL_M, Joints, floor_map, main_floor, rounded
from tpsrl.world.geodesic import SNAP_M
from tpsrl.world.handles import handle
from tpsrl.world.kinematics import cup_pose
from tpsrl.world.objects import ObjectKind, object_kind
from tpsrl.world.placement import Prism, box_prism, circle, gap
from tpsrl.world.reach import static_bodies
from tpsrl.world.state import JOINTS

SPAWN_M = 2.0  # maximum distance from object or goal at the start of Pick and Place
SPAWN_GROWTH_M = 0.02  # increase of this distance after each `_TRIES_EACH` failed tries
_TRIES_EACH = 20
HEADING_NOISE_RAD = 0.523599  # standard deviation
MARGIN_M = 0.02  # clearance of arm and held object

Draw = Callable[[int], Start | None]  # draws a start state, given the number of failed tries


def near(
    base: Episode,
    rng: np.random.Generator,
    point: Sequence[float],
    goal: SkillGoal,
    held: int,
    within: float = SPAWN_M,
) -> Draw:
    """Returns a `Draw` of base poses near a point that face it, with noise in the heading.

    Args:
        base: episode
        rng: random generator
        point: (3,) in the world frame
        goal: goal of the start states
        held: index of the object in the hand, -1 for none
        within: maximum distance from the point in metres, before failed tries increase it
    """
    cells = free_cells(base.layout, rounded(joints_at(base.articulation)))
    away = np.hypot(cells[:, 0] - point[0], cells[:, 1] - point[1])
    room = Room(base, held)

    def draw(attempt: int) -> Start | None:
        reach = within + attempt // _TRIES_EACH * SPAWN_GROWTH_M
        near = cells[away <= reach]
        if not len(near):
            return None
        x, y = in_cell(near[rng.integers(len(near))], rng)
        if math.dist((x, y), point[:2]) > reach:
            return None
        heading = math.atan2(point[1] - y, point[0] - x)
        return room.start_at((x, y, heading + float(rng.normal(0.0, HEADING_NOISE_RAD))), goal)

    return draw


class Room:
    """Collision checks of base poses in an episode's home.

    Args:
        base: episode
        held: index of the object in the hand, -1 for none
        moving: door or drawer that is checked as separate boxes in its current position, so that
            the maps for the other doors and drawers can be cached; "" for none
    """

    def __init__(self, base: Episode, held: int = -1, moving: str = "") -> None:
        self._base, self._held = base, held
        joints = joints_at(base.articulation)
        self._still = rounded(
            [ABSENT if key == moving else q for key, q in zip(JOINTS, joints, strict=True)]
        )
        kinds = [object_kind(o.name) for o in base.objects]
        rows = [i for i in range(len(kinds)) if i != held]
        pos = np.array([o.pos for o in base.objects])[rows]
        quat = np.array([o.quat for o in base.objects])[rows]
        loose = object_bodies([kinds[i] for i in rows], pos, quat)
        self._links: list[Prism] = []
        if moving:
            boxes = handle(base.layout, moving).boxes(joints[JOINTS.index(moving)])
            self._links = [
                box_prism(*box)
                for box in zip(boxes.centre, boxes.rotation, boxes.half, strict=True)
            ]
            loose = loose.plus(boxes)
        self._bodies = static_bodies(base.layout, self._still).plus(loose)
        self._spheres = ARM_SPHERES if held < 0 else ARM_SPHERES.plus(_spheres(kinds[held]))
        self._floor = floor_map(base.layout, joints=self._still)

    def nearest_spot(self, wanted: np.ndarray) -> tuple[float, float] | None:
        """Returns the nearest point (x, y) at which the base's disc is free.

        Args:
            wanted: (2 or more,) point in the world frame, in metres

        Returns:
            (x, y), or None if there is none within `SNAP_M`.
        """
        cells = free_cells(self._base.layout, self._still)
        away = np.hypot(cells[:, 0] - wanted[0], cells[:, 1] - wanted[1])
        order = np.flatnonzero(away < SNAP_M)
        spots = cells[order[np.argsort(away[order])]]
        if len(spots) and away.min() < CELL_M / 2:  # The point's own cell is free.
            spots = np.concatenate([wanted[None, :2], spots])
        return next(((float(x), float(y)) for x, y in spots if self._stands(x, y)), None)

    def _stands(self, x: float, y: float) -> bool:
        """Returns whether the base's disc is free at a point."""
        if self._floor.clearance(x, y) < BASE_RADIUS:
            return False
        disc = circle(BASE_RADIUS) + np.array([x, y])
        return all(gap(disc, link.corners) >= 0.0 for link in self._links)

    def start_at(self, pose: tuple[float, float, float], goal: SkillGoal) -> Start | None:
        """Returns the start state at a base pose (x, y, yaw).

        None if the base's disc, the resting arm or the held object would be in collision.
        """
        x, y, yaw = pose
        near, _ = self._bodies.seen_from(np.array(pose))
        if not self._stands(x, y) or not ArmChecker(self._spheres, near).free(REST, MARGIN_M):
            return None
        yaw = (yaw + math.pi) % (2 * math.pi) - math.pi
        episode = dataclasses.replace(self._base, robot_start=(x, y, yaw), held=self._held)
        return Start(episode, goal)


def hanging(kind: ObjectKind) -> Grasp:
    """Returns the grasp of an object that hangs upright from the cup of the resting arm."""
    _, turn = cup_pose(REST)
    x, y, z = turn[2].tolist()
    half = kind.half[2]
    return Grasp((-half * x, -half * y, -half * z), (x, y, z))


def _spheres(kind: ObjectKind) -> Spheres:
    """Returns spheres of an object that hangs upright from the cup of the resting arm."""
    _, turn = cup_pose(REST)
    tip = np.array([GRIPPER + CUP, 0.0, 0.0])
    return held_spheres(kind, tip + np.array(hanging(kind).centre), turn.T)


@functools.lru_cache(maxsize=256)
def free_cells(layout: str, joints: Joints) -> np.ndarray:
    """Returns the centres (n, 2) of the cells of the main floor, in metres in the world frame."""
    x0, y0 = floor_map(layout).origin
    iy, ix = np.nonzero(main_floor(layout, joints))
    return np.stack([x0 + (ix + 0.5) * CELL_M, y0 + (iy + 0.5) * CELL_M], axis=1)


def in_cell(centre: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    """Draws a point (x, y) in the cell with a centre (2,), uniformly."""
    x, y = centre + rng.uniform(-CELL_M / 2, CELL_M / 2, size=2)
    return float(x), float(y)
