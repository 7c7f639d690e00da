"""Stances and arm postures for opening or closing a door or drawer by driving.

The arm keeps one posture while the base drives up to the face and then moves it (`door_motion`). A
candidate is therefore an arm posture and the base pose at contact, the stance. Each hold (`holds`)
gives one stance. Candidates are tried in order of their cost in control steps.
"""

import dataclasses
import functools
import math

import numpy as np

from tpsrl.motion.base.driving import STOP_STEPS, Leg, drive_field, plan_drive
from tpsrl.motion.base.stances import DRIVE_STEPS, FOOTPRINT_MARGIN_M, ahead, drivable
from tpsrl.motion.base.tip_tracking import tip_in_world
from tpsrl.motion.body.timing import plan_together, slowest
from tpsrl.motion.doors.door_motion import (
    Drag,
    can_back_off,
    clear_of_link,
    foresee,
    foresee_all,
    without_load,
)
from tpsrl.motion.doors.holds import Holds, holds, least_facing, off_face
from tpsrl.motion.scene import Scene
from tpsrl.world.action import ARM_DELTA_RAD, STEP_M, STEP_RAD
from tpsrl.world.collision import REST
from tpsrl.world.fetch import BASE_RADIUS
from tpsrl.world.floor import CELL_M
from tpsrl.world.footprint import Footprint, posed_spheres
from tpsrl.world.geometry import wrap_angle
from tpsrl.world.handles import Handle
from tpsrl.world.handles import handle as handle_of
from tpsrl.world.kinematics import cup_pose
from tpsrl.world.layouts import resolve
from tpsrl.world.reach import to_base

# Goals of opening, and the least positions for which a stance is accepted. Drawers open to just
# before the stop, since less than 0.45 m leaves bowls under the worktop. The door opens until the
# shelf is free.
_OPEN_M, _LEAST_M = 0.48, 0.46
_OPEN_RAD, _LEAST_RAD, _ENOUGH_RAD = 1.5, 1.3, 1.19
_SHUT = 0.035  # counts as closed; objects above a drawer may keep the hand from pushing further

RETREAT_M = 0.35  # an arm that folds nearer to the face than this would move the drawer again
_IN_M, _OFF_M, _BESIDE_M = -0.05, 0.2, 0.08  # limits of a cup in front of a face, see `from_here`
_OVERSHOOT_M = 0.08  # further retreat of the base while the cup is taken off the face
_APPROACH_M = 0.1  # length of the last straight drive, with the arm in its posture
_ENTER_M = 0.25  # the same for a hand that enters between an open door and a wall
_ENTERING = (0.2, 0.4, 0.6, 0.8, 1.0)
_BRUSH_M = 0.012  # clearance from edges, since the base deviates by up to a centimetre
_MARGIN_M = 0.006
_CREEP_STEPS = 8.0
# Navigate should end within HAB's 15 degrees of the handle, if that does not cost too much.
_FACING_RAD, _ASKEW_STEPS = 0.24, 40.0
_ODD_STEPS = 150.0  # cost of a radian of deviation from the usual hold
_STRAIGHT, _STRAIGHT_SLIDE = 1.5, 0.3  # weights of yaw to the face beside arm motion: door, drawer
# Weights of `usual_hold`, for doors and for drawers: of a radian of yaw (_TURNED) and of a metre
# beside the place where robots begin (_ASIDE). That place is _STANDS_M beside the handle of a door.
_TURNED, _TURNED_SLIDE = 0.4, 0.15
_ASIDE, _ASIDE_SLIDE = 1.0, 0.6
_FAR_SLIDE = 0.5  # weight of a metre off a drawer's face: a wall behind may limit the retreat
_STANDS_M = -0.27
_TURNED_PUSH, _PAST_THE_EDGE_RAD = 1.0, -0.9
_DRIVES_KNOWN = 600  # number of candidates for which the drive is estimated
_PLACE_M, _PLACE_RAD, _SAME_PLACE = 0.08, 0.2, 3  # size of a place, and candidates kept for each
_ARRIVED = 0.6  # in places: a base this near to `first` corrects the error in the last drive
_MAX_WAYS = 400
_MAX_DRIVES = 6
_COMPARED, _ELSEWHERE = 8, 2.0  # candidates that are timed exactly, and their spacing in places


@dataclasses.dataclass(frozen=True, slots=True)
class Approach:
    """Plan that brings the cup to a face.

    The base drives along `legs` (None if not needed) to pose `first` (3,), the arm moves to
    `posture` (7,), and the base drives straight ahead to `stance` (3,), where the cup is on the
    face.
    """

    legs: list[Leg] | None
    first: np.ndarray
    stance: np.ndarray
    posture: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True)
class _Ways:
    """Candidates, one a row, quickest first."""

    steps: np.ndarray  # (n,) estimated control steps
    back: np.ndarray  # (n,) the part of `steps` from the handle to rest
    first: np.ndarray  # (n, 3)
    stance: np.ndarray  # (n, 3)
    posture: np.ndarray  # (n, 7)

    def rows(self, rows: np.ndarray) -> "_Ways":
        """Returns the candidates in some rows."""
        return _Ways(*(getattr(self, field.name)[rows] for field in dataclasses.fields(self)))


def open_goal(handle: Handle) -> tuple[float, float, float]:
    """Returns joint positions (rad or m): goal, least position, and least position as fallback."""
    if handle.slides:
        return _OPEN_M, _LEAST_M, _LEAST_M
    return _OPEN_RAD, _LEAST_RAD, _ENOUGH_RAD


def plan_approach(
    scene: Scene, handle: Handle, joint: float, opening: bool, usual: bool = False
) -> Approach | None:
    """Plans the quickest approach for opening or closing from joint position `joint`, or None.

    With `usual` one hold is preferred wherever it is possible, even if it is slower, so that
    policies learn from consistent demonstrations.
    """
    search = _Search(scene, handle, joint, opening, usual)
    return search.from_here() or search.best()


class _Search:
    """Search for an approach."""

    def __init__(
        self, scene: Scene, handle: Handle, joint: float, opening: bool, usual: bool
    ) -> None:
        self._scene, self._handle, self._usual = scene, handle, usual
        self._joint, self._opening = joint, opening
        self._footprint = scene.footprint(scene.arm)
        empty = without_load(scene, handle, joint)
        self._without = empty.footprint(scene.arm, without=handle.index)
        self._goals = open_goal(handle) if opening else (0.0, _SHUT, _SHUT)

    def from_here(self) -> Approach | None:
        """Returns a straight drive to the face if the arm is already in front of it, or None."""
        scene, normal = self._scene, self._handle.normal(self._joint)
        tip, turn = cup_pose(scene.arm)
        facing = float(-to_base(scene.base, normal) @ turn[:, 0])
        away = tip_in_world(scene.base, tip) - self._handle.point(self._joint)
        beside = np.abs(away - (away @ normal) * normal).max()
        off = float(away @ normal) - float(off_face(np.asarray(facing), self._opening))
        if facing < least_facing(self._opening) or beside > _BESIDE_M or not _IN_M < off < _OFF_M:
            return None
        stance = scene.base - np.append(off * normal[:2], 0.0)
        drag = self._drag(stance, scene.arm)
        if drag is None or not self._far_enough(drag, self._goals[2]):
            return None
        return Approach(None, scene.base, stance, scene.arm)

    def best(self) -> Approach | None:
        """Returns the quickest free approach, or None."""
        _, least, fallback = self._goals
        ways = self._ways()
        walled: list[np.ndarray] = []
        known: list[np.ndarray] = []
        second: tuple[float, Approach] | None = None
        best, chosen = math.inf, None
        for steps, back, first, stance, posture in zip(
            ways.steps, ways.back, ways.first, ways.stance, ways.posture, strict=True
        ):
            if steps >= best or len(known) == _COMPARED or len(walled) == _MAX_DRIVES:
                break
            if any(_near(first, pose, 1.0) for pose in walled):
                continue
            if any(_near(first, pose, _ELSEWHERE) for pose in known):
                continue
            drag = self._drag(stance, posture) if self._enters(first, stance, posture) else None
            if drag is None:
                continue
            far, enough = (self._far_enough(drag, limit) for limit in (least, fallback))
            if not enough or (second is not None and not far and drag.joint <= second[0]):
                continue
            arrived = _near(first, self._scene.base, _ARRIVED)
            legs = None if arrived else plan_drive(self._footprint, self._scene.base, first)
            if legs is None and not arrived:
                walled.append(first)
                continue
            approach = Approach(legs, first, stance, posture)
            if not far:
                second = (drag.joint, approach)
                continue
            known.append(first)
            steps = _steps_to(self._scene, approach) + _CREEP_STEPS + back
            if steps < best:
                best, chosen = steps, approach
        if chosen is None and second is not None:
            return second[1]
        return chosen

    def _enters(self, first: np.ndarray, stance: np.ndarray, posture: np.ndarray) -> bool:
        """Returns whether the arm can be raised at `first` (3,) and then reach the face."""
        if not drivable(self._footprint, first, FOOTPRINT_MARGIN_M):
            return False
        around = _with_posture(self._footprint, self._scene, posture)
        if around.margin(*first) < _MARGIN_M:
            return False
        # A pushing hand may come around the edge of a door; a pulling hand stays before the face.
        return self._opening or all(
            around.margin(*first + t * (stance - first)) > _BRUSH_M for t in _ENTERING
        )

    def _drag(self, stance: np.ndarray, posture: np.ndarray) -> Drag | None:
        """Returns the motion possible from a stance, None for a collision then or afterwards."""
        scene, handle = self._scene, self._handle
        reaching = _with_posture(self._without, scene, posture)
        if reaching.margin(*stance) < 0.0:
            return None
        if not clear_of_link(scene, handle, self._joint, stance, posture):
            return None
        goal, least, _ = self._goals
        drag = foresee(scene, handle, stance, posture, self._joint, goal, reaching)
        back = RETREAT_M if self._far_enough(drag, least) else RETREAT_M / 2
        if not can_back_off(reaching, drag.base, back):
            return None
        # The arm is folded at these poses before the robot drives off.
        folded = _with_posture(self._without, scene, REST)
        ends = (ahead(drag.base, -back), ahead(drag.base, -back - _OVERSHOOT_M))
        return drag if all(folded.margin(*end) > _MARGIN_M for end in ends) else None

    def _far_enough(self, drag: Drag, least: float) -> bool:
        return drag.joint >= least if self._opening else drag.joint <= least

    def _ways(self) -> _Ways:
        """Returns the most promising candidates."""
        scene = self._scene
        table = _table(self._handle, self._joint, self._opening, scene.layout)
        stance = _stances(self._handle, self._joint, table)
        approach = _APPROACH_M if self._opening or self._handle.slides else _ENTER_M
        first = _ahead(stance, -approach)
        arm = np.abs(table.posture - scene.arm).max(axis=1) / ARM_DELTA_RAD
        back = np.abs(table.posture - REST).max(axis=1) / ARM_DELTA_RAD
        turn = np.abs(wrap_angle(first[:, 2] - scene.base[2]))
        drive = np.hypot(*(first[:, :2] - scene.base[:2]).T) / STEP_M + turn / STEP_RAD
        steps = np.maximum(drive + DRIVE_STEPS + 2 * STOP_STEPS, arm) + self._askew(first) + back
        more = _odd(table, self._handle.slides) if self._usual else np.zeros(len(steps))
        ways = _Ways(steps + more + _CREEP_STEPS, back + more, first, stance, table.posture)
        ways = ways.rows(self._on_floor(first) & self._on_floor(stance))
        ways = ways.rows(_spread(ways, _DRIVES_KNOWN))
        field = drive_field(self._footprint, scene.base)
        arm = np.abs(ways.posture - scene.arm).max(axis=1) / ARM_DELTA_RAD
        drive = np.array([field(pose) for pose in ways.first]) + DRIVE_STEPS
        if not np.isfinite(drive).any():  # the base is too close to an obstacle for the field
            drive = ways.steps - ways.back
        steps = np.maximum(drive, arm) + self._askew(ways.first) + ways.back + _CREEP_STEPS
        ways = dataclasses.replace(ways, steps=steps)
        order = np.argsort(steps, kind="stable")
        return ways.rows(order[np.isfinite(steps[order])][:_MAX_WAYS])

    def _on_floor(self, poses: np.ndarray) -> np.ndarray:
        """Returns whether the base's disc is free at poses (n, 3), by a coarse check."""
        disc, origin = self._footprint.disc, np.array(self._footprint.origin)
        ix, iy = ((poses[:, :2] - origin) / CELL_M).astype(np.int64).T
        inside = (ix >= 0) & (iy >= 0) & (ix < disc.shape[1]) & (iy < disc.shape[0])
        clear = disc[np.where(inside, iy, 0), np.where(inside, ix, 0)] > BASE_RADIUS - CELL_M
        return inside & clear

    def _askew(self, first: np.ndarray) -> np.ndarray:
        """Returns the cost (n,) of poses that do not face the handle."""
        away = self._handle.point(self._joint)[:2] - first[:, :2]
        off = np.abs(wrap_angle(np.arctan2(away[:, 1], away[:, 0]) - first[:, 2]))
        return np.where(off > _FACING_RAD, _ASKEW_STEPS, 0.0)


def usual_hold(handle: Handle, joint: float, layout: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the usual posture (7,) for opening, and the base pose (3,) with the cup on the face.

    The result is the same in all homes, even where it is blocked, since a policy that learns from
    it cannot tell the homes apart.
    """
    table = _table(handle, joint, True, layout)
    stance, normal = _stances(handle, joint, table), handle.normal(joint)[:2]
    beside = (stance[:, :2] - handle.point(joint)[:2]) @ np.array([-normal[1], normal[0]])
    if handle.slides:
        far = (stance[:, :2] - handle.point(joint)[:2]) @ normal
        odd = _TURNED_SLIDE * np.abs(table.inward) + _ASIDE_SLIDE * np.abs(beside)
        odd += _FAR_SLIDE * far
    else:
        odd = _TURNED * np.abs(table.inward) + _ASIDE * np.abs(beside - _STANDS_M)
    row = int(np.argmin(odd + np.abs(table.posture - REST).max(axis=1)))
    return table.posture[row], stance[row]


def usual_push(handle: Handle, joint: float) -> np.ndarray:
    """Returns the usual posture (7,) for closing a door, with the hand past its free edge.

    The result is the same in all homes and for all joint positions, since a wall may be behind the
    door.
    """
    table = holds(round(float(handle.point(joint)[2]), 2), opening=False)
    odd = _TURNED_PUSH * np.abs(table.inward - _PAST_THE_EDGE_RAD)
    return table.posture[int(np.argmin(odd + np.abs(table.posture - REST).max(axis=1)))]


def _odd(table: Holds, slides: bool) -> np.ndarray:
    """Returns the cost (n,) of holds by their deviation from the usual hold, control steps.

    In the usual hold the robot stands straight in front of the face, where every home has room,
    with the arm near rest. (The quickest hold of the fridge is from beside it, which a wall next to
    the hinge prevents.)
    """
    straight = _STRAIGHT_SLIDE if slides else _STRAIGHT
    far = np.abs(table.posture - REST).max(axis=1) + straight * np.abs(table.inward)
    usual = int(np.argmin(far))
    bent = np.abs(table.posture - table.posture[usual]).max(axis=1)
    turned = np.abs(table.inward - table.inward[usual])
    odd: np.ndarray = _ODD_STEPS * (bent + turned)
    return odd


def _table(handle: Handle, joint: float, opening: bool, layout: str) -> Holds:
    """Returns the holds that are worth trying."""
    height = round(float(handle.point(joint)[2]), 2)
    if not opening or joint > _SHUT:
        return holds(height, opening)
    # The possible motion of a shut door does not depend on its place in the home.
    layout_set = resolve(layout)[0]
    return _promising(f"{layout_set.name}/{next(iter(layout_set.layouts))}", handle.marker, height)


@functools.lru_cache(maxsize=16)
def _promising(layout: str, marker: str, height: float) -> Holds:
    """Returns the holds with which a shut door or drawer can be opened far enough; cached."""
    table, where = holds(height, opening=True), handle_of(layout, marker)
    goal, _, enough = open_goal(where)
    stance = _stances(where, 0.0, table)
    return table.rows(foresee_all(layout, marker, stance, table.posture, goal) >= enough)


def _stances(handle: Handle, joint: float, table: Holds) -> np.ndarray:
    """Returns the base poses (n, 3) at which the cup is on the face."""
    point, into = handle.point(joint), -handle.normal(joint)
    yaw = (math.atan2(into[1], into[0]) - table.inward + math.pi) % (2 * math.pi) - math.pi
    cos, sin = np.cos(yaw), np.sin(yaw)
    tip = point[:2] - table.apart[:, None] * into[:2]
    x = tip[:, 0] - cos * table.tip[:, 0] + sin * table.tip[:, 1]
    y = tip[:, 1] - sin * table.tip[:, 0] - cos * table.tip[:, 1]
    return np.stack([x, y, yaw], axis=1)


def _ahead(poses: np.ndarray, distance: float) -> np.ndarray:
    """Returns the base poses (n, 3) `distance` metres straight ahead of others."""
    yaw = poses[:, 2]
    return poses + distance * np.stack([np.cos(yaw), np.sin(yaw), np.zeros(len(yaw))], axis=1)


def _spread(ways: _Ways, count: int) -> np.ndarray:
    """Returns rows of the quickest candidates, at most `_SAME_PLACE` for each place."""
    cell = np.column_stack([ways.stance[:, :2] / _PLACE_M, ways.stance[:, 2] / _PLACE_RAD])
    taken: dict[tuple[int, ...], int] = {}
    chosen: list[int] = []
    for row in np.argsort(ways.steps, kind="stable"):
        key = tuple(np.round(cell[row]).astype(int))
        if taken.get(key, 0) < _SAME_PLACE:
            taken[key] = taken.get(key, 0) + 1
            chosen.append(int(row))
            if len(chosen) == count:
                break
    return np.array(chosen, dtype=np.int64)


def _near(a: np.ndarray, b: np.ndarray, places: float) -> bool:
    """Returns whether two base poses (3,) are less than `places` places apart."""
    apart = np.abs(a[:2] - b[:2]).max() / _PLACE_M, abs(wrap_angle(a[2] - b[2])) / _PLACE_RAD
    return bool(max(apart) < places)


def _with_posture(footprint: Footprint, scene: Scene, posture: np.ndarray) -> Footprint:
    """Returns the footprint with another arm posture."""
    centre, radius = posed_spheres(posture, scene.spheres)
    return dataclasses.replace(footprint, centre=centre, radius=radius)


def _steps_to(scene: Scene, approach: Approach) -> float:
    """Returns the control steps of drive and arm motion, in sequence if not possible at once."""
    path = np.stack([scene.arm, approach.posture])
    way = plan_together(scene, approach.legs or [], path, anywhere=True)
    return way.steps if way is not None else slowest(scene.base, approach.legs or [], path)
