"""Motion of the cup's tip by driving the base, while the arm keeps its posture.

The tip is a point (px, py) in the base frame with px > 0, ahead of the wheels' axle. Driving and
turning together can therefore move the tip in any direction: with a tip velocity (vx, vy) in the
base frame, omega = vy / px and v = vx + omega py. The base follows like a trailer. The arm, which
is far slower than the base, need not move. Doors are opened in this manner (`tpsrl.motion.doors`).
Where the straight path back is blocked, a held object is led out from between its neighbours in
this manner, by A* over base poses in steps of the tip.
"""

import heapq
import math

import numpy as np

from tpsrl.motion.tracking import Blocked, OffPlan, patience
from tpsrl.runtime.compiled import njit
from tpsrl.world.action import CONTROL_HZ
from tpsrl.world.footprint import Footprint, pose_margin
from tpsrl.world.state import WorldState

_STEP_M = 0.03  # step of the tip
_SPEED_MPS, _SPEED_UP_MPS2, _BRAKE_MPS2, _LAST_MPS = 1.2, 9.0, 6.0, 0.2
_WINDOW, _AIM = 8, 2  # poses of a path: searched for the tip; look-ahead
_OFF_M = 0.06
# Directions of a step relative to straight back, rad.
_ANGLES = np.array([0.0, 0.3, -0.3, 0.65, -0.65, 1.05, -1.05, math.pi / 2, -math.pi / 2])
_BEND_STEPS = 0.4  # cost of a change of direction by a radian
_ROOM_M, _CROWDED_STEPS = 0.012, 1.5  # margin below which poses cost more, and the largest cost
_DEEPER_M = 0.005  # allowed loss of margin relative to the start
_CELL_M, _CELL_RAD = 0.015, 0.04
_BACK_M, _SIDE_M, _TURN_RAD = (-0.06, 0.9), 0.42, 0.9  # limits of the search
_MAX_POPS = 4000
_LEAST_TIP_M = 0.3  # least distance of the tip ahead of the axle
_START_STEPS = 4.0


def base_velocity(tip: np.ndarray, velocity: np.ndarray) -> tuple[float, float]:
    """Returns the base's (m/s, rad/s) for a velocity (2+,) of the tip (2+,), base frame."""
    omega = velocity[1] / tip[0]
    return float(velocity[0] + omega * tip[1]), float(omega)


@njit(cache=True)
def to_world(base: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Transforms a point (3,) from the frame of a base pose (3,) to the world, compiled."""
    c, s = math.cos(base[2]), math.sin(base[2])
    x, y = base[0] + c * point[0] - s * point[1], base[1] + s * point[0] + c * point[1]
    return np.array([x, y, point[2]])


def tip_in_world(base: np.ndarray, tip: np.ndarray) -> np.ndarray:
    """Transforms a point (3,) from the frame of a base pose (3,) to the world."""
    return np.asarray(to_world(np.asarray(base, dtype=np.float64), tip))


class Lead:
    """Controller that moves the tip along the positions given by a path of base poses.

    Args:
        way: base poses (k, 3), see `ways_back`.
        tip: (3,) tip of the cup, base frame.
    """

    def __init__(self, way: np.ndarray, tip: np.ndarray) -> None:
        self._places = np.array([tip_in_world(pose, tip)[:2] for pose in way])
        self._at = self._slow = 0
        self._speed = 0.0

    def velocity(self, world: WorldState) -> np.ndarray | None:
        """Returns the next velocity (3,) of the tip, world frame, m/s; None at the end of the path.

        Raises:
            OffPlan: the tip is too far from the path.
            Blocked: the tip has made no progress for too long.
        """
        place, before = np.asarray(world.ee_pos[0]), self._at
        near = self._places[self._at : self._at + _WINDOW]
        away = np.linalg.norm(near - place[:2], axis=1)
        if away.min() > _OFF_M:
            raise OffPlan("lead")
        self._at += int(np.argmin(away))
        last = len(self._places) - 1
        if self._at == last:
            return None
        self._slow = 0 if self._at > before else self._slow + 1
        if self._slow > patience(world):
            raise Blocked("lead")
        braked = math.sqrt(2 * _BRAKE_MPS2 * (last - self._at) * _STEP_M) + _LAST_MPS
        self._speed = min(self._speed + _SPEED_UP_MPS2 / CONTROL_HZ, _SPEED_MPS, braked)
        towards = self._places[min(self._at + _AIM, last)] - place[:2]
        level = self._speed * towards / float(np.linalg.norm(towards))
        return np.array([level[0], level[1], 0.0])


def ways_back(
    footprint: Footprint, base: np.ndarray, tip: np.ndarray, depths: np.ndarray
) -> list[np.ndarray]:
    """Finds the quickest paths that move the tip back by given depths.

    Args:
        footprint: footprint of the present arm posture and the held object.
        base: (3,) present base pose.
        tip: (3,) tip of the cup, base frame.
        depths: (n,) distances back, metres, ascending.

    Returns:
        For each depth that can be reached, base poses (k, 3), one for each step of the tip, the
        present pose first.
    """
    if tip[0] < _LEAST_TIP_M:
        return []
    base = np.asarray(base, dtype=np.float64)
    poses, parent, ends = _search(base, tip[0], tip[1], depths, footprint.arguments())
    ways = []
    for at in ends:
        rows = []
        while at >= 0:
            rows.append(at)
            at = parent[at]
        if rows:
            ways.append(poses[rows[::-1]])
    return ways


def steps_of(way: np.ndarray) -> float:
    """Estimates the control steps of a path (k, 3)."""
    return (len(way) - 1) * _STEP_M * CONTROL_HZ / _SPEED_MPS + _START_STEPS


@njit(cache=True)
def _search(
    base: np.ndarray, px: float, py: float, depths: np.ndarray, scene: tuple
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns poses (m, 3), parents (m,), and the pose that reaches each depth (n,) or -1."""
    c0, s0 = math.cos(base[2]), math.sin(base[2])
    deepest = depths[-1]
    nx = int((_BACK_M[1] - _BACK_M[0]) / _CELL_M) + 1
    ny, nt = int(2 * _SIDE_M / _CELL_M) + 1, int(2 * _TURN_RAD / _CELL_RAD) + 1
    best = np.full((nx, ny, nt), np.inf)
    size = _MAX_POPS * _ANGLES.shape[0] + 1
    poses, parent, angle = np.empty((size, 3)), np.full(size, -1), np.zeros(size)
    cost, back = np.zeros(size), np.zeros(size)
    ends = np.full(depths.shape[0], -1)
    poses[0] = base
    own = pose_margin(base[0], base[1], base[2], *scene)
    least = min(own, 0.0) - _DEEPER_M
    a_step = _STEP_M * CONTROL_HZ / _SPEED_MPS
    queue = [(deepest / _STEP_M * a_step, 0)]
    count, pops, reached = 1, 0, 0
    while len(queue) and pops < _MAX_POPS and reached < depths.shape[0]:
        _, at = heapq.heappop(queue)
        x, y, yaw = poses[at]
        if at > 0:
            i, j, k, inside = _cell(base, c0, s0, x, y, yaw)
            if cost[at] > best[i, j, k] + 1e-9:
                continue
        pops += 1
        depth = back[at]
        while reached < depths.shape[0] and depth >= depths[reached]:
            ends[reached] = at
            reached += 1
        for n in range(_ANGLES.shape[0]):
            phi = math.pi + _ANGLES[n]
            turn = _STEP_M * math.sin(phi) / px
            ahead = _STEP_M * math.cos(phi) + turn * py
            heading = yaw + 0.5 * turn
            qx, qy = x + ahead * math.cos(heading), y + ahead * math.sin(heading)
            i, j, k, inside = _cell(base, c0, s0, qx, qy, yaw + turn)
            if not inside:
                continue
            total = cost[at] + a_step
            if at > 0:
                total += _BEND_STEPS * abs(_ANGLES[n] - angle[at])
            if total >= best[i, j, k] - 1e-9:
                continue
            margin = pose_margin(qx, qy, yaw + turn, *scene)
            if margin < least:
                continue
            if margin < _ROOM_M:
                total += _CROWDED_STEPS * (1.0 - margin / _ROOM_M)
                if total >= best[i, j, k] - 1e-9:
                    continue
            best[i, j, k] = total
            poses[count, 0], poses[count, 1], poses[count, 2] = qx, qy, yaw + turn
            parent[count], angle[count], cost[count] = at, _ANGLES[n], total
            c, s = math.cos(yaw + turn), math.sin(yaw + turn)
            dx, dy = qx + c * px - s * py - base[0], qy + s * px + c * py - base[1]
            back[count] = px - (c0 * dx + s0 * dy)
            left = max(deepest - back[count], 0.0)
            heapq.heappush(queue, (total + left / _STEP_M * a_step, count))
            count += 1
    return poses[:count], parent[:count], ends


@njit(cache=True)
def _cell(
    base: np.ndarray, c0: float, s0: float, x: float, y: float, yaw: float
) -> tuple[int, int, int, bool]:
    """Returns the cell of a pose relative to the first base pose, and whether it is in limits."""
    dx, dy = x - base[0], y - base[1]
    back, side = -(c0 * dx + s0 * dy), c0 * dy - s0 * dx
    turn = (yaw - base[2] + math.pi) % (2 * math.pi) - math.pi
    inside = _BACK_M[0] <= back < _BACK_M[1] and abs(side) < _SIDE_M and abs(turn) < _TURN_RAD
    i = int((back - _BACK_M[0]) / _CELL_M)
    return i, int((side + _SIDE_M) / _CELL_M), int((turn + _TURN_RAD) / _CELL_RAD), inside
