"""Geometric collision checks of the arm against boxes and cylinders, compiled.

Collision model of the motion planner. The arm is a chain of spheres along the capsules from which
its contact geoms are made too. Obstacles are boxes and upright or tilted cylinders. A check takes
a few microseconds, so that a plan can afford thousands.
"""

import dataclasses
import math

import numpy as np

from tpsrl.runtime.compiled import njit
from tpsrl.world.fetch import ARM, CAPSULES, CUP, CUP_RADIUS, GRIPPER, REST_ARM, TRUNK
from tpsrl.world.geometry import quat_matrix
from tpsrl.world.kinematics import arm_frames
from tpsrl.world.objects import ObjectKind

BOX, CYLINDER = 0, 1
TOOL = len(ARM) - 1  # index of the link that carries cup and held object

_LINKS = {joint.name: index for index, joint in enumerate(ARM)}
_NEAR_M = 1.6  # largest distance of arm and held object from the base's axis


@dataclasses.dataclass(frozen=True, slots=True)
class Spheres:
    """Spheres on links: link index (n,), centre in the link's frame (n, 3), radius (n,); metres."""

    link: np.ndarray
    centre: np.ndarray
    radius: np.ndarray

    def plus(self, other: "Spheres") -> "Spheres":
        """Returns the spheres of both sets."""
        return Spheres(
            np.concatenate([self.link, other.link]),
            np.concatenate([self.centre, other.centre]),
            np.concatenate([self.radius, other.radius]),
        )


def _arm_spheres() -> Spheres:
    link, centre, radius = [], [], []
    for name, start, end, r in CAPSULES:
        if _LINKS[name] == 0:
            continue  # the shoulder stays within the outline of the base
        length = float(np.linalg.norm(np.subtract(end, start)))
        count = max(2, math.ceil(length / (0.9 * r)) + 1)
        for t in np.linspace(0.0, 1.0, count):
            link.append(_LINKS[name])
            centre.append(np.add(start, t * np.subtract(end, start)))
            radius.append(r)
    for x in np.arange(GRIPPER, GRIPPER + CUP - CUP_RADIUS + 1e-6, CUP_RADIUS):
        link.append(TOOL)
        centre.append(np.array([x, 0.0, 0.0]))
        radius.append(CUP_RADIUS)
    return Spheres(np.array(link), np.array(centre), np.array(radius))


ARM_SPHERES = _arm_spheres()


def held_spheres(kind: ObjectKind, pos: np.ndarray, rotation: np.ndarray) -> Spheres:
    """Returns spheres that fill a held object, whose pose is in the frame of the tool link."""
    hx, hy, hz = kind.half
    r = max(min(hx, hy, hz), 0.015)
    axes = [np.linspace(-(h - r), h - r, max(1, math.ceil((h - r) / r) + 1)) for h in (hx, hy, hz)]
    points = np.array([[x, y, z] for x in axes[0] for y in axes[1] for z in axes[2]])
    if kind.primitive != "box":
        flat = np.hypot(points[:, 0], points[:, 1])
        scale = np.where(flat > hx - r, (hx - r) / np.maximum(flat, 1e-9), 1.0)
        points[:, :2] *= scale[:, None]
    count = len(points)
    return Spheres(np.full(count, TOOL), pos + points @ np.asarray(rotation).T, np.full(count, r))


@dataclasses.dataclass(frozen=True, slots=True)
class Bodies:
    """Obstacles in one frame: kind (n,), centre (n, 3), rotation (n, 3, 3), half (n, 3)."""

    kind: np.ndarray
    centre: np.ndarray
    rotation: np.ndarray
    half: np.ndarray

    def plus(self, other: "Bodies") -> "Bodies":
        """Returns the obstacles of both sets, the rows of `other` last."""
        return Bodies(
            np.concatenate([self.kind, other.kind]),
            np.concatenate([self.centre, other.centre]),
            np.concatenate([self.rotation, other.rotation]),
            np.concatenate([self.half, other.half]),
        )

    def seen_from(self, base: np.ndarray) -> tuple["Bodies", np.ndarray]:
        """Returns the obstacles within the arm's reach, in the frame of a base pose (3,).

        Returns:
            The obstacles, and the indices of their rows.
        """
        delta = self.centre - np.array([base[0], base[1], 0.0])
        reach = np.linalg.norm(self.half, axis=1)
        rows = np.flatnonzero(np.hypot(delta[:, 0], delta[:, 1]) < _NEAR_M + reach)
        c, s = math.cos(base[2]), math.sin(base[2])
        turn = np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])
        return (
            Bodies(
                self.kind[rows],
                np.ascontiguousarray(delta[rows] @ turn.T),
                np.ascontiguousarray(turn @ self.rotation[rows]),
                self.half[rows],
            ),
            rows,
        )


def object_bodies(kinds: list[ObjectKind], pos: np.ndarray, quat: np.ndarray) -> Bodies:
    """Returns obstacles for objects at poses (n, 3), (n, 4); a sphere counts as a box."""
    return Bodies(
        np.array([CYLINDER if k.primitive == "cylinder" else BOX for k in kinds], dtype=np.int64),
        np.asarray(pos, dtype=np.float64).reshape(-1, 3),
        quat_matrix(np.asarray(quat, dtype=np.float64).reshape(-1, 4)),
        np.array([k.half for k in kinds], dtype=np.float64).reshape(-1, 3),
    )


NO_BODIES = Bodies(
    np.zeros(0, dtype=np.int64), np.zeros((0, 3)), np.zeros((0, 3, 3)), np.zeros((0, 3))
)


def _trunk_bodies() -> Bodies:
    kinds, centres, halves = [], [], []
    for _, kind, size, centre in TRUNK:
        kinds.append(CYLINDER if kind == "cylinder" else BOX)
        centres.append(centre)
        halves.append(size if kind == "box" else (size[0], size[0], size[1]))
    count = len(kinds)
    return Bodies(
        np.array(kinds), np.array(centres), np.tile(np.eye(3), (count, 1, 1)), np.array(halves)
    )


TRUNK_BODIES = _trunk_bodies()


@njit(cache=True)
def distance_to(
    kind: int, centre: np.ndarray, rotation: np.ndarray, half: np.ndarray, p: np.ndarray
) -> float:
    """Returns the signed distance (m) of a point (3,) to a box or cylinder; negative inside."""
    d0, d1, d2 = p[0] - centre[0], p[1] - centre[1], p[2] - centre[2]
    x = abs(rotation[0, 0] * d0 + rotation[1, 0] * d1 + rotation[2, 0] * d2)
    y = abs(rotation[0, 1] * d0 + rotation[1, 1] * d1 + rotation[2, 1] * d2)
    z = abs(rotation[0, 2] * d0 + rotation[1, 2] * d1 + rotation[2, 2] * d2)
    qz = z - half[2]
    if kind == 1:
        qr = math.sqrt(x * x + y * y) - half[0]
        outside = math.sqrt(max(qr, 0.0) ** 2 + max(qz, 0.0) ** 2)
        return outside + min(max(qr, qz), 0.0)
    qx, qy = x - half[0], y - half[1]
    outside = math.sqrt(max(qx, 0.0) ** 2 + max(qy, 0.0) ** 2 + max(qz, 0.0) ** 2)
    return outside + min(max(qx, max(qy, qz)), 0.0)


@njit(cache=True)
def distances_to(
    kind: np.ndarray, centre: np.ndarray, rotation: np.ndarray, half: np.ndarray, p: np.ndarray
) -> np.ndarray:
    """Returns signed distances (n,) (m) of a point (3,) to boxes and cylinders; negative inside."""
    out = np.empty(kind.shape[0])
    for i in range(kind.shape[0]):
        out[i] = distance_to(kind[i], centre[i], rotation[i], half[i], p)
    return out


@njit(cache=True)
def clearance(
    q: np.ndarray,
    link: np.ndarray,
    centre: np.ndarray,
    radius: np.ndarray,
    kind: np.ndarray,
    obstacle: np.ndarray,
    rotation: np.ndarray,
    half: np.ndarray,
    trunk_kind: np.ndarray,
    trunk: np.ndarray,
    trunk_half: np.ndarray,
    target: int,
    enough: float,
) -> float:
    """Returns the least distance (m) of the arm's spheres to obstacles, floor and trunk.

    Everything is in the base frame. The search stops at the first distance below `enough`, so that
    a result below `enough` is only an upper bound. Obstacle `target` is ignored for the tool link,
    which is meant to touch it; -1 for none.
    """
    pos = np.empty((7, 3))
    rot = np.empty((7, 3, 3))
    arm_frames(q, pos, rot)
    p = np.empty(3)
    identity = np.eye(3)
    least = 1e9
    n = obstacle.shape[0]
    for i in range(link.shape[0]):
        k = link[i]
        for r in range(3):
            p[r] = (
                pos[k, r]
                + rot[k, r, 0] * centre[i, 0]
                + rot[k, r, 1] * centre[i, 1]
                + rot[k, r, 2] * centre[i, 2]
            )
        reach = radius[i]
        least = min(least, p[2] - reach)
        for j in range(n):
            if j == target and k == 6:
                continue
            bound = half[j, 0] + half[j, 1] + half[j, 2] + reach + least
            dx = p[0] - obstacle[j, 0]
            dy = p[1] - obstacle[j, 1]
            dz = p[2] - obstacle[j, 2]
            if dx * dx + dy * dy + dz * dz > bound * bound:
                continue
            d = distance_to(kind[j], obstacle[j], rotation[j], half[j], p) - reach
            if d < least:
                least = d
                if least < enough:
                    return least
        if k >= 3:
            for j in range(trunk.shape[0]):
                d = distance_to(trunk_kind[j], trunk[j], identity, trunk_half[j], p) - reach
                least = min(least, d)
        if least < enough:
            return least
    return least


@dataclasses.dataclass(slots=True)
class ArmChecker:
    """Clearance of arm postures at one base pose.

    `spheres` are those of the arm and a held object, `bodies` the obstacles in the base frame, and
    `target` is the obstacle that the tool link may touch, -1 for none.
    """

    spheres: Spheres
    bodies: Bodies
    target: int = -1

    def arguments(self) -> tuple[np.ndarray, ...]:
        """Returns the arguments of the compiled functions between posture and target."""
        s, b, t = self.spheres, self.bodies, TRUNK_BODIES
        return (
            s.link,
            s.centre,
            s.radius,
            b.kind,
            b.centre,
            b.rotation,
            b.half,
            t.kind,
            t.centre,
            t.half,
        )

    def clearance(self, q: np.ndarray, enough: float = -1e9) -> float:
        """Returns the least distance to any obstacle, metres; below `enough` an upper bound."""
        return float(clearance(q, *self.arguments(), self.target, enough))

    def free(self, q: np.ndarray, margin: float) -> bool:
        """Returns whether the clearance is at least `margin` metres."""
        return self.clearance(q, margin) >= margin


REST = np.array(REST_ARM)
