"""Distances from points of the robot to surrounding surfaces: a privileged sensor.

Without this sensor the privileged state does not contain the furniture, and a policy that learns
from that state collides with it. The robot is a handful of points; for each of them the sensor
gives the nearest surface within `CLEARANCE_RANGE_M`.
"""

import math

import mujoco
import numpy as np

from tpsrl.runtime.compiled import njit
from tpsrl.sim.home_model import HomeModel
from tpsrl.sim.mjcf.home import NEVER_M
from tpsrl.sim.mujoco_home import MujocoHome
from tpsrl.world.fetch import (
    CLEARANCE_POINTS,
    CLEARANCE_RANGE_M,
    CUP,
    GRIPPER,
    HAND_POINTS,
    HELD_POINTS,
)

_CENTRE = np.array((0.1, 0.0, 0.7))  # centre of the arm's reach, in the base frame (m)
_REACH_M = 1.2  # from the centre to the farthest point of the robot
_BOX, _CYLINDER, _SPHERE = (
    int(getattr(mujoco.mjtGeom, f"mjGEOM_{name}")) for name in ("BOX", "CYLINDER", "SPHERE")
)


def obstacles_of(home: HomeModel) -> tuple[np.ndarray, np.ndarray]:
    """Returns the geoms (g,) that count as surfaces, and their slots, -1 for furniture; int32."""
    model = home.model
    collides = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    collides &= ~home.robot_geom
    collides[home.floor_geom] = False
    geoms = np.flatnonzero(collides)
    return geoms.astype(np.int32), home.geom_slot[geoms].astype(np.int32)


class Clearance:
    """Measures clearances in homes of one model.

    Args:
        home: the model and the addresses of its parts
        margin: distance in metres by which loose objects other than the target appear nearer to
            the hand
    """

    def __init__(self, home: HomeModel, margin: float = 0.0) -> None:
        model = home.model
        self._margin = margin
        self._geoms, self._slots = (part.astype(np.int64) for part in obstacles_of(home))
        self._kinds = model.geom_type[self._geoms].astype(np.int64)
        loose = self._slots >= 0
        self._loose = self._geoms[loose], self._kinds[loose], self._slots[loose]
        bodies = [model.body(name).id for name, _ in CLEARANCE_POINTS]
        self._bodies = np.array(bodies, dtype=np.int64)
        self._local = np.array([point for _, point in CLEARANCE_POINTS])
        self._base, self._wrist = model.body("base").id, home.cup_body

    def measure(self, one: MujocoHome, target: int, out: np.ndarray) -> None:
        """Writes one row per point into `out` (points, 4) float32.

        A row is the unit vector towards the nearest surface, in the base frame, and the distance
        in metres, negative inside. If no surface is within `CLEARANCE_RANGE_M`, the vector is zero
        and the distance is that range. The last `HELD_POINTS` rows are the centre and the far side
        of the held object; without a held object they are as if no surface were near.

        Args:
            one: the home; a held object is not an obstacle
            target: slot of the object that the hand is meant to touch, which is not an obstacle
                for the first `HAND_POINTS` points; -1 for none
            out: receives the rows
        """
        _measure(
            one.geom_pos,
            one.geom_mat,
            one.geom_size,
            one.geom_bound,
            one.geom_margin,
            one.xpos,
            one.xmat,
            self._geoms,
            self._kinds,
            self._slots,
            self._bodies,
            self._local,
            self._base,
            self._wrist,
            one.held,
            target,
            self._margin,
            out,
        )

    def neighbours(self, one: MujocoHome, target: int, point: np.ndarray, out: np.ndarray) -> None:
        """Writes where the nearest loose objects and the target are.

        Rows of `out` (3, 4) float32 are as in `measure`: from the cup and from `point` (3,), in the
        world frame (m), to the nearest object other than the held one and the one in slot `target`,
        and from the cup to the target, without a margin.
        """
        tip = np.array((GRIPPER + CUP, 0.0, 0.0))
        points = np.empty((2, 3))
        _place(one.xpos[self._wrist], one.xmat[self._wrist], tip, points[0])
        points[1] = point
        _measure_loose(
            one.geom_pos,
            one.geom_mat,
            one.geom_size,
            one.geom_bound,
            one.geom_margin,
            *self._loose,
            one.xmat[self._base],
            one.held,
            target,
            points,
            self._margin,
            out,
        )


@njit(cache=True)
def _measure_loose(
    geom_pos: np.ndarray,
    geom_mat: np.ndarray,
    geom_size: np.ndarray,
    geom_bound: np.ndarray,
    geom_margin: np.ndarray,
    geoms: np.ndarray,
    kinds: np.ndarray,
    slots: np.ndarray,
    turn: np.ndarray,
    held: int,
    target: int,
    points: np.ndarray,
    margin: float,
    out: np.ndarray,
) -> None:
    found = np.empty(4)
    for p in range(len(out)):
        row = out[p]
        row[0], row[1], row[2], row[3] = 0.0, 0.0, 0.0, CLEARANCE_RANGE_M
        of_target = p == len(points)
        point = points[0 if of_target else p]
        apart = 0.0 if of_target else margin
        for i in range(len(geoms)):
            g = geoms[i]
            if of_target != (slots[i] == target) or (slots[i] == held and not of_target):
                continue
            if geom_margin[g] <= 0.5 * NEVER_M and not of_target:
                continue
            if _beyond(geom_pos[g], geom_bound[g], point, row[3] + apart):
                continue
            _nearest(kinds[i], geom_pos[g], geom_mat[g], geom_size[g], point, found)
            found[3] -= apart
            if found[3] < row[3]:
                _in_frame(turn, found, row)


@njit(cache=True)
def _in_frame(turn: np.ndarray, found: np.ndarray, row: np.ndarray) -> None:
    """Copies `found` (vector, distance) to `row` (4,), the vector turned to a body's frame."""
    for k in range(3):
        row[k] = turn[k] * found[0] + turn[3 + k] * found[1] + turn[6 + k] * found[2]
    row[3] = found[3]


@njit(cache=True)
def _measure(
    geom_pos: np.ndarray,
    geom_mat: np.ndarray,
    geom_size: np.ndarray,
    geom_bound: np.ndarray,
    geom_margin: np.ndarray,
    body_pos: np.ndarray,
    body_mat: np.ndarray,
    geoms: np.ndarray,
    kinds: np.ndarray,
    slots: np.ndarray,
    bodies: np.ndarray,
    local: np.ndarray,
    base: int,
    wrist: int,
    held: int,
    target: int,
    margin: float,
    out: np.ndarray,
) -> None:
    found = np.empty(4)
    centre = np.empty(3)
    _place(body_pos[base], body_mat[base], _CENTRE, centre)
    near = np.empty(len(geoms), dtype=np.int64)
    count = 0
    hand = -1  # index in `near` of the target
    for i in range(len(geoms)):
        g = geoms[i]
        if slots[i] >= 0 and (slots[i] == held or geom_margin[g] <= 0.5 * NEVER_M):
            continue
        limit = _REACH_M + CLEARANCE_RANGE_M
        if _beyond(geom_pos[g], geom_bound[g], centre, limit):
            continue
        _nearest(kinds[i], geom_pos[g], geom_mat[g], geom_size[g], centre, found)
        if found[3] < limit:
            if slots[i] >= 0 and slots[i] == target:
                hand = count
            near[count] = i
            count += 1
    points = len(bodies)
    point, tip = np.empty(3), np.empty(3)
    turn = body_mat[base]
    for p in range(points + HELD_POINTS):
        row = out[p]
        row[0], row[1], row[2], row[3] = 0.0, 0.0, 0.0, CLEARANCE_RANGE_M
        if p < points:
            _place(body_pos[bodies[p]], body_mat[bodies[p]], local[p], point)
        elif held < 0:
            continue
        else:
            tip[0], tip[1], tip[2] = GRIPPER + CUP, 0.0, 0.0
            _place(body_pos[wrist], body_mat[wrist], tip, tip)
            for g_place in range(len(geoms)):
                if slots[g_place] == held:
                    for k in range(3):
                        point[k] = geom_pos[geoms[g_place], k]
                    break
            if p > points:
                for k in range(3):
                    point[k] += point[k] - tip[k]
        best = CLEARANCE_RANGE_M
        for j in range(count):
            if j == hand and p < HAND_POINTS:
                continue
            i = near[j]
            g = geoms[i]
            nearer = margin if p < HAND_POINTS and slots[i] >= 0 else 0.0
            if _beyond(geom_pos[g], geom_bound[g], point, best + nearer):
                continue
            _nearest(kinds[i], geom_pos[g], geom_mat[g], geom_size[g], point, found)
            found[3] -= nearer
            if found[3] < best:
                best = found[3]
                _in_frame(turn, found, row)


@njit(cache=True)
def _place(pos: np.ndarray, mat: np.ndarray, local: np.ndarray, out: np.ndarray) -> None:
    """Transforms a point (3,) from a body's frame to the world frame; `mat` (9,) is row-major."""
    x, y, z = local[0], local[1], local[2]
    for k in range(3):
        out[k] = pos[k] + mat[3 * k] * x + mat[3 * k + 1] * y + mat[3 * k + 2] * z


@njit(cache=True)
def _beyond(pos: np.ndarray, bound: float, point: np.ndarray, limit: float) -> bool:
    """Returns whether the bounding sphere of a geom is farther than `limit` (m) from a point."""
    dx, dy, dz = pos[0] - point[0], pos[1] - point[1], pos[2] - point[2]
    far = limit + bound
    return dx * dx + dy * dy + dz * dz > far * far


@njit(cache=True)
def _nearest(
    kind: int,
    pos: np.ndarray,
    mat: np.ndarray,
    size: np.ndarray,
    point: np.ndarray,
    out: np.ndarray,
) -> None:
    """Writes the unit vector towards a geom's surface and the signed distance (m) to `out` (4,).

    Inside the geom the vector is opposite to the nearest face's outward normal, so that it does not
    flip when the point enters.
    """
    dx, dy, dz = point[0] - pos[0], point[1] - pos[1], point[2] - pos[2]
    x = mat[0] * dx + mat[3] * dy + mat[6] * dz
    y = mat[1] * dx + mat[4] * dy + mat[7] * dz
    z = mat[2] * dx + mat[5] * dy + mat[8] * dz
    ox, oy, oz = 0.0, 0.0, 0.0  # from the surface outwards, in the geom's frame
    if kind == _BOX:
        qx, qy, qz = abs(x) - size[0], abs(y) - size[1], abs(z) - size[2]
        ox, oy, oz = max(qx, 0.0), max(qy, 0.0), max(qz, 0.0)
        distance = math.sqrt(ox * ox + oy * oy + oz * oz)
        if distance <= 0.0:
            distance = max(qx, max(qy, qz))
            ox = 1.0 if qx == distance else 0.0
            oy = 1.0 if qy == distance else 0.0
            oz = 1.0 if qz == distance else 0.0
        ox, oy, oz = math.copysign(ox, x), math.copysign(oy, y), math.copysign(oz, z)
    elif kind == _CYLINDER:
        axial = math.sqrt(x * x + y * y)
        qr, qz = axial - size[0], abs(z) - size[1]
        outwards, oz = max(qr, 0.0), max(qz, 0.0)
        distance = math.sqrt(outwards * outwards + oz * oz)
        if distance <= 0.0:
            distance = max(qr, qz)
            outwards = 1.0 if qr == distance else 0.0
            oz = 1.0 if qz == distance else 0.0
        ox, oy = outwards * x / max(axial, 1e-9), outwards * y / max(axial, 1e-9)
        oz = math.copysign(oz, z)
    else:
        distance = math.sqrt(x * x + y * y + z * z) - size[0]
        ox, oy, oz = x, y, z
    length = max(math.sqrt(ox * ox + oy * oy + oz * oz), 1e-9)
    out[0] = -(mat[0] * ox + mat[1] * oy + mat[2] * oz) / length
    out[1] = -(mat[3] * ox + mat[4] * oy + mat[5] * oz) / length
    out[2] = -(mat[6] * ox + mat[7] * oy + mat[8] * oz) / length
    out[3] = distance
