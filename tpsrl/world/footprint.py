"""Whether a base pose is free for the base's disc and the arm above it, at every height."""

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
_FAR_M = 0.5  # more than any margin that is asked for
_HOPELESS_M = -0.08  # a collision; how deep does not matter
_UPRIGHT = 1.0 - 1e-9
_SLABS = 17  # up to 1.7 m, above the elbow's highest


@functools.lru_cache(maxsize=12)
def slab_distances(layout: str, joints: Joints = CLOSED) -> np.ndarray:
    """Distance maps (17, ny, nx) float32 of what stands in each band of `SLAB_M` from the floor.

    0 in obstacles; what is farther than half a metre counts as that.
    """
    return slab_maps(layout, SLAB_M, _SLABS, joints, _FAR_M)


def posed_spheres(q: np.ndarray, spheres: Spheres = ARM_SPHERES) -> tuple[np.ndarray, np.ndarray]:
    """Centres (n, 3) in the base frame and radii (n,) of an arm posture (7,)."""
    pos, rot = np.empty((7, 3)), np.empty((7, 3, 3))
    arm_frames(q, pos, rot)
    centre = pos[spheres.link] + np.einsum("nij,nj->ni", rot[spheres.link], spheres.centre)
    return centre, spheres.radius


@dataclasses.dataclass(frozen=True, slots=True)
class Footprint:
    """What the compiled checks need: maps of the layout, spheres of the arm, loose objects."""

    origin: tuple[float, float]
    disc: np.ndarray  # (ny, nx) distance map of the base's band
    slabs: np.ndarray  # (17, ny, nx)
    centre: np.ndarray  # (n, 3) spheres in the base frame
    radius: np.ndarray  # (n,)
    kind: np.ndarray  # furniture boxes, then loose objects, exactly; world frame
    obstacle: np.ndarray
    rotation: np.ndarray
    half: np.ndarray
    static: int  # how many of them are furniture

    def arguments(self) -> tuple:
        """The fields, in the order that the compiled functions take them."""
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
        """Least clearance of the robot at a base pose, metres."""
        return float(pose_margin(x, y, yaw, *self.arguments()))


def make_footprint(
    layout: str,
    q: np.ndarray,
    objects: Bodies,
    spheres: Spheres = ARM_SPHERES,
    joints: Joints = CLOSED,
) -> Footprint:
    """The footprint of an arm posture (with a held object, if `spheres` has one) in a layout."""
    centre, radius = posed_spheres(q, spheres)
    # What stays above the base's disc is free wherever the disc is: its band reaches 1.5 m.
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
    """Least clearance (m) at a base pose: disc against its band, spheres against everything.

    The maps of the slabs answer for spheres in the open; near furniture they are too coarse in
    height, and the boxes themselves are asked.
    """
    least = clearance_gradient(disc, x0, y0, x, y)[0] - BASE_RADIUS
    if least < 0.0:
        return least
    # Boxes that are farther off than all the spheres reach cannot make it less.
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
