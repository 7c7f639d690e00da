"""Clearance of base poses for the base's disc and for the arm above it, at every height."""

import dataclasses
import functools
import math

import numpy as np

from tpsrl.runtime.compiled import njit
from tpsrl.world.collision import ARM_SPHERES, Bodies, Spheres, distance_to
from tpsrl.world.fetch import BASE_RADIUS
from tpsrl.world.floor import CLOSED, Joints, clearance_gradient, floor_map
from tpsrl.world.kinematics import arm_frames
from tpsrl.world.reach import static_bodies
from tpsrl.world.slabs import slab_maps

SLAB_M = 0.1
_OPEN_M = 0.06
_FAR_M = 0.5  # cap of the distances, more than any required margin
_HOPELESS_M = -0.08  # a collision this deep need not be measured exactly
_UPRIGHT = 1.0 - 1e-9
_SLABS = 17  # up to 1.7 m, above the highest position of the elbow


@functools.lru_cache(maxsize=12)
def slab_distances(layout: str, joints: Joints = CLOSED) -> np.ndarray:
    """Returns distance maps (17, ny, nx) float32 of the obstacles in each band of `SLAB_M`.

    Distances are 0 in obstacles and capped at 0.5 m. The first band begins at the floor.
    """
    return slab_maps(layout, SLAB_M, _SLABS, joints, _FAR_M)


def posed_spheres(q: np.ndarray, spheres: Spheres = ARM_SPHERES) -> tuple[np.ndarray, np.ndarray]:
    """Returns centres (n, 3) in the base frame and radii (n,) of the spheres at a posture (7,)."""
    pos, rot = np.empty((7, 3)), np.empty((7, 3, 3))
    arm_frames(q, pos, rot)
    centre = pos[spheres.link] + np.einsum("nij,nj->ni", rot[spheres.link], spheres.centre)
    return centre, spheres.radius


@dataclasses.dataclass(frozen=True, slots=True)
class Footprint:
    """Input of the compiled checks: maps of the layout, spheres of the arm, loose objects."""

    origin: tuple[float, float]
    disc: np.ndarray  # (ny, nx) distance map of the base's band
    slabs: np.ndarray  # (17, ny, nx)
    centre: np.ndarray  # (n, 3) spheres in the base frame
    radius: np.ndarray  # (n,)
    kind: np.ndarray  # exact obstacles: furniture boxes, then loose objects; world frame
    obstacle: np.ndarray
    rotation: np.ndarray
    half: np.ndarray
    static: int  # number of obstacles that are furniture

    def arguments(self) -> tuple:
        """Returns the fields in the argument order of the compiled functions."""
        return (
            self.origin[0],
            self.origin[1],
            self.disc,
            self.slabs,
            self.centre,
            self.radius,
            self.kind,
            self.obstacle,
            self.rotation,
            self.half,
            self.static,
        )

    def margin(self, x: float, y: float, yaw: float) -> float:
        """Returns the least clearance of the robot at a base pose, metres."""
        return float(pose_margin(x, y, yaw, *self.arguments()))


def make_footprint(
    layout: str,
    q: np.ndarray,
    objects: Bodies,
    spheres: Spheres = ARM_SPHERES,
    joints: Joints = CLOSED,
) -> Footprint:
    """Builds the footprint of an arm posture in a layout.

    Args:
        layout: "SET/NAME"
        q: (7,) arm posture, rad
        objects: loose objects, world frame
        spheres: spheres of the arm, and of the held object if there is one
        joints: positions of doors and drawers
    """
    centre, radius = posed_spheres(q, spheres)
    # Spheres within the base's disc are free wherever the disc is, since its band reaches 1.5 m.
    over = np.hypot(centre[:, 0], centre[:, 1]) + radius > BASE_RADIUS
    centre, radius = centre[over], radius[over]
    disc = floor_map(layout, joints=joints)
    static = static_bodies(layout, joints)
    bodies = static.plus(objects)
    return Footprint(
        disc.origin,
        disc.distance,
        slab_distances(layout, joints),
        centre,
        radius,
        bodies.kind,
        bodies.centre,
        bodies.rotation,
        bodies.half,
        len(static.kind),
    )


@njit(cache=True)
def pose_margin(
    x: float,
    y: float,
    yaw: float,
    x0: float,
    y0: float,
    disc: np.ndarray,
    slabs: np.ndarray,
    centre: np.ndarray,
    radius: np.ndarray,
    kind: np.ndarray,
    obstacle: np.ndarray,
    rotation: np.ndarray,
    half: np.ndarray,
    static: int,
) -> float:
    """Returns the least clearance (m) at a base pose.

    The disc is checked against the obstacles in its band, the spheres against all obstacles. For
    spheres in the open the maps of the slabs suffice. Near furniture the slabs are too coarse in
    height, so that the boxes themselves are used.
    """
    least = clearance_gradient(disc, x0, y0, x, y)[0] - BASE_RADIUS
    if least < 0.0:
        return least
    # Boxes beyond the reach of all spheres cannot lower the clearance.
    reach = 0.0
    for i in range(radius.shape[0]):
        reach = max(reach, math.hypot(centre[i, 0], centre[i, 1]) + radius[i])
    near, count, furniture = np.empty(kind.shape[0], dtype=np.int64), 0, 0
    for j in range(kind.shape[0]):
        dx, dy = x - obstacle[j, 0], y - obstacle[j, 1]
        turn = rotation[j]
        if turn[2, 2] > _UPRIGHT:
            u = max(abs(turn[0, 0] * dx + turn[1, 0] * dy) - half[j, 0], 0.0)
            v = max(abs(turn[0, 1] * dx + turn[1, 1] * dy) - half[j, 1], 0.0)
            away = math.sqrt(u * u + v * v)
        else:
            a, b, c = half[j]
            away = math.sqrt(dx * dx + dy * dy) - math.sqrt(a * a + b * b + c * c)
        if away <= reach + least:
            near[count] = j
            count += 1
            if j < static:
                furniture = count
    c, s = math.cos(yaw), math.sin(yaw)
    p = np.empty(3)
    for i in range(radius.shape[0]):
        p[0] = x + c * centre[i, 0] - s * centre[i, 1]
        p[1] = y + s * centre[i, 0] + c * centre[i, 1]
        p[2] = centre[i, 2]
        low = max(int((p[2] - radius[i]) / SLAB_M), 0)
        high = min(int((p[2] + radius[i]) / SLAB_M), slabs.shape[0] - 1)
        open_by = 1e9
        for k in range(low, high + 1):
            d = clearance_gradient(slabs[k], x0, y0, p[0], p[1])[0] - radius[i]
            open_by = min(open_by, d)
        first = 0
        if open_by > _OPEN_M:
            least = min(least, open_by)
            first = furniture
        for n in range(first, count):
            j = near[n]
            bound = half[j, 0] + half[j, 1] + half[j, 2] + radius[i] + max(least, 0.0)
            dx, dy, dz = p[0] - obstacle[j, 0], p[1] - obstacle[j, 1], p[2] - obstacle[j, 2]
            if dx * dx + dy * dy + dz * dz > bound * bound:
                continue
            d = distance_to(kind[j], obstacle[j], rotation[j], half[j], p) - radius[i]
            least = min(least, d)
        if least < _HOPELESS_M:
            return least
    return least
