"""Navigate by servoing: the demonstrator that policies are cloned from.

Paths descend one cost field over the cells of the floor, with higher costs near furniture, to cells
from which the goal is near and can be faced. The action is a function of the base pose: drive
towards a point a little ahead on the path; where the arm would collide, use other speeds or back
off.
"""

import math

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from skills.core.interface import SkillGoal
from skills.scripted.servoing import wrap
from tpsrl.motion.scene import Scene, look
from tpsrl.world import action as act
from tpsrl.world.episode import Episode
from tpsrl.world.floor import CELL_M, floor_map, main_floor, rounded
from tpsrl.world.footprint import Footprint
from tpsrl.world.geodesic import distance_field, free_floor
from tpsrl.world.state import WorldState

_NEAR_M = 1.35  # straight-line distance to the goal; the benchmark requires 1.5
_ROUND_M = (1.2, 1.6, 2.2)  # and distance along the floor, which excludes walls in between
_ROOMS_M = (0.6, 0.5, 0.4, 0.3)  # clearance; the first value with a free cell is used
_ALMOST_M = 0.8  # cost to the nearest end cell, within which stopping is good enough
_FACING_RAD = 0.15  # the benchmark requires 0.26
_WIDE_M, _DEARER = 0.7, 4.0  # clearance below which costs rise, and their maximum increase
_AHEAD_M = 0.55
_TURN_GAIN, _FASTEST = 3.5, 1.8
_WINDOW_S, _KEPT_M = 0.3, 0.02  # forecast window; minimum clearance
_SPEEDS, _TURNS = (1.2, 0.6, 0.25, 0.0, -0.3, -0.6), (-2.5, -1.2, -0.5, 0.0, 0.5, 1.2, 2.5)
_TURN_M = 0.35  # metres of path that one radian of turning counts
_MOVES = ((0, 1), (1, 0), (1, 1), (1, -1))


class ServoNavigate:
    """Demonstrator of Navigate; `SkillGoal.position` is the goal."""

    depth_size: tuple[int, int] | None = None

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.Demonstrator.begin`."""
        assert goal.position is not None
        self.episode = episode
        self.goal = np.asarray(goal.position, np.float64)
        joints = rounded(np.asarray(world.joints[0]))
        self._map = floor_map(episode.layout, joints=joints)
        scene = look(episode, world)
        self._footprint: tuple[np.ndarray, Footprint] | None = None
        self._cost = _field(episode.layout, joints, self.goal, self._posed(scene))

    def diagnosis(self) -> dict[str, int]:
        """Returns {}."""
        return {}

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        """See `skills.core.interface.SkillPolicy.act`."""
        return self.label(world)[0]

    def label(self, world: WorldState) -> tuple[np.ndarray, bool]:
        """See `skills.core.interface.Demonstrator.label`."""
        scene = look(self.episode, world)
        action = np.zeros(act.SIZE)
        action[act.GRIP] = 1.0 if scene.held is not None else -1.0
        action[act.STOP] = -1.0
        x, y, yaw = scene.base
        facing = wrap(math.atan2(self.goal[1] - y, self.goal[0] - x) - yaw)
        cell = self._cell(x, y)
        if cell is None:
            return action, False
        near = math.hypot(self.goal[0] - x, self.goal[1] - y) < _NEAR_M
        if near and abs(facing) < _FACING_RAD and self._cost[cell] < _ALMOST_M:
            action[act.STOP] = 1.0
            return action, True
        if self._cost[cell] == 0.0:
            if abs(facing) >= _FACING_RAD:
                action[act.BASE] = self._safe(scene, 0.0, _TURN_GAIN * facing)
            return action, True
        room = self._map.clearance(x, y)
        fastest = min(_FASTEST, 0.4 + 4.0 * max(room - 0.3, 0.0))
        fastest = min(fastest, 0.4 + 2.5 * float(self._cost[cell]))
        off = self._off(cell, scene.base)
        speed = fastest * max(math.cos(off), 0.0) ** 3
        action[act.BASE] = self._safe(scene, speed, _TURN_GAIN * off)
        return action, True

    def _off(self, cell: tuple[int, int], base: np.ndarray) -> float:
        """Returns the angle from a pose (3,) to the next point of the path, or finally the goal."""
        px, py = self.goal[:2] if self._cost[cell] == 0.0 else self._ahead(cell)
        return wrap(math.atan2(py - base[1], px - base[0]) - base[2])

    def _cell(self, x: float, y: float) -> tuple[int, int] | None:
        """Returns the cell nearest to a point that has a path to the goal, or None."""
        ix = int((x - self._map.origin[0]) / CELL_M)
        iy = int((y - self._map.origin[1]) / CELL_M)
        ny, nx = self._cost.shape
        best, found = math.inf, None
        for radius in range(8):
            for j in range(max(iy - radius, 0), min(iy + radius + 1, ny)):
                for i in range(max(ix - radius, 0), min(ix + radius + 1, nx)):
                    far = math.hypot(j - iy, i - ix)
                    if far < best and math.isfinite(self._cost[j, i]):
                        best, found = far, (j, i)
            if found is not None and best <= radius:
                return found
        return found

    def _ahead(self, cell: tuple[int, int]) -> tuple[float, float]:
        """Returns the point `_AHEAD_M` farther along the path from a cell."""
        j, i = cell
        gone, ny, nx = 0.0, *self._cost.shape
        while gone < _AHEAD_M and self._cost[j, i] > 0.0:
            around = [
                (self._cost[b, a], b, a)
                for b in range(max(j - 1, 0), min(j + 2, ny))
                for a in range(max(i - 1, 0), min(i + 2, nx))
            ]
            least, b, a = min(around)
            if least >= self._cost[j, i]:
                break
            gone += CELL_M * math.hypot(b - j, a - i)
            j, i = b, a
        return (
            self._map.origin[0] + (i + 0.5) * CELL_M,
            self._map.origin[1] + (j + 0.5) * CELL_M,
        )

    def _safe(self, scene: Scene, speed: float, turn: float) -> np.ndarray:
        """Returns the base's action (2,) for speeds (m/s, rad/s), or a free alternative."""
        turn = float(np.clip(turn, -act.BASE_ANGULAR_RPS, act.BASE_ANGULAR_RPS))
        footprint = self._posed(scene)
        now = footprint.margin(*scene.base)
        enough = min(_KEPT_M, now + 0.003)
        if _least(footprint, _rolled(scene.base, speed, turn)) >= enough:
            chosen = speed, turn
        else:
            chosen = self._around(scene.base, footprint, enough)
        speeds = [chosen[0] / act.BASE_LINEAR_MPS, chosen[1] / act.BASE_ANGULAR_RPS]
        return np.clip(speeds, -1.0, 1.0)

    def _around(self, base: np.ndarray, footprint: Footprint, enough: float) -> tuple[float, float]:
        """Returns the collision-free speeds after which the remaining cost is lowest.

        This follows the dynamic window approach (Fox, Burgard and Thrun 1997).
        """
        best, chosen = math.inf, (0.0, 0.0)
        for v in _SPEEDS:
            for w in _TURNS:
                poses = _rolled(base, v, w)
                cell = self._cell(poses[-1][0], poses[-1][1])
                if cell is None:
                    continue
                left = float(self._cost[cell]) + _TURN_M * abs(self._off(cell, poses[-1]))
                if left < best and _least(footprint, poses) >= enough:
                    best, chosen = left, (v, w)
        return chosen

    def _posed(self, scene: Scene) -> Footprint:
        """Returns the footprint with the current arm, cached because the arm hardly moves."""
        kept = self._footprint
        if kept is None or float(np.abs(kept[0] - scene.arm).max()) > 0.01:
            kept = self._footprint = (scene.arm.copy(), scene.footprint(scene.arm))
        return kept[1]


def _rolled(base: np.ndarray, speed: float, turn: float) -> list[np.ndarray]:
    """Returns the poses that speeds (m/s, rad/s) lead to from a base pose in `_WINDOW_S`."""
    poses = []
    for share in (0.3, 0.6, 1.0):
        t = share * _WINDOW_S
        middle = base[2] + 0.5 * turn * t
        along = np.array([math.cos(middle), math.sin(middle)])
        poses.append(np.array([*(base[:2] + speed * t * along), base[2] + turn * t]))
    return poses


def _least(footprint: Footprint, poses: list[np.ndarray]) -> float:
    """Returns the minimum clearance (m) at poses (3,)."""
    return min(footprint.margin(*pose) for pose in poses)


def _field(
    layout: str, joints: tuple[float, ...], goal: np.ndarray, footprint: Footprint
) -> np.ndarray:
    """Computes the cost (ny, nx) of the path from each cell to the nearest end cell; inf: no path.

    The unit is metres, weighted higher near obstacles.
    """
    floor = floor_map(layout, joints=joints)
    free = main_floor(layout, joints)
    ny, nx = free.shape
    room = np.asarray(floor.distance, np.float64)
    dear = 1.0 + _DEARER * np.clip((_WIDE_M - room) / _WIDE_M, 0.0, 1.0) ** 2
    number = np.full(free.shape, -1)
    number[free] = np.arange(int(free.sum()))
    rows, columns, costs = [], [], []
    for dy, dx in _MOVES:
        a = (slice(0, ny - dy), slice(max(-dx, 0), nx - max(dx, 0)))
        b = (slice(dy, ny), slice(max(dx, 0), nx - max(-dx, 0)))
        both = free[a] & free[b]
        rows.append(number[a][both])
        columns.append(number[b][both])
        costs.append(CELL_M * math.hypot(dy, dx) * 0.5 * (dear[a][both] + dear[b][both]))
    count = int(free.sum())
    graph = sparse.coo_matrix(
        (np.concatenate(costs), (np.concatenate(rows), np.concatenate(columns))), (count, count)
    ).tocsr()
    ends = _ends(layout, joints, goal, free, room, footprint)
    cost = np.full(free.shape, np.inf)
    if len(ends):
        least = csgraph.dijkstra(graph, False, number[tuple(ends.T)], min_only=True)
        cost[free] = least
    return cost


def _ends(
    layout: str,
    joints: tuple[float, ...],
    goal: np.ndarray,
    free: np.ndarray,
    room: np.ndarray,
    footprint: Footprint,
) -> np.ndarray:
    """Returns end cells (n, 2): near the goal along the floor, with some clearance.

    In each of them the arm is free of collisions when the robot faces the goal.
    """
    floor = floor_map(layout, joints=joints)
    cells = np.argwhere(free)
    points = np.array(floor.origin) + (cells[:, ::-1] + 0.5) * CELL_M
    near = np.hypot(*(points - goal[:2]).T) < _NEAR_M
    cells, points = cells[near], points[near]
    around = distance_field(free_floor(layout, joints), goal[:2].tolist()).distances(points)
    for farthest in _ROUND_M:
        for least in _ROOMS_M:
            good = (around < farthest) & (room[tuple(cells.T)] >= least)
            found: np.ndarray = cells[good][
                [
                    footprint.margin(x, y, math.atan2(goal[1] - y, goal[0] - x)) >= _KEPT_M
                    for x, y in points[good]
                ]
            ]
            if len(found):
                return found
    return cells[:0]
