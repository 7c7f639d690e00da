"""Planning of grasps and of placements of the held object.

The choice of a grasp considers the goal of the object, since the angle between cup and object stays
the same until the release.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from tpsrl.motion.base.stances import Stances, ahead, nearest_floor
from tpsrl.motion.base.tip_tracking import steps_of, ways_back
from tpsrl.motion.body.reach_search import LEVELS, Reach, StanceSearch
from tpsrl.motion.scene import Held, Scene, hold
from tpsrl.motion.suction.contacts import SPHERE, touches
from tpsrl.motion.suction.cup_targets import CupTargets
from tpsrl.motion.suction.placements import standing
from tpsrl.world.collision import BOX, CYLINDER, REST
from tpsrl.world.episode import Episode, Target
from tpsrl.world.footprint import Footprint
from tpsrl.world.kinematics import cup_pose, inverse
from tpsrl.world.reach import APPROACH_M, CUP_AXIS, NO_OFFSET

# Returns postures (7,) to which the arm can be brought first.
Arms = Callable[[], Sequence[np.ndarray]]

# Cost of a step of Navigate's drive relative to a step of the skill that follows.
DRIVE_WEIGHT = 0.5
_SAME = 0.02  # rad, m: motion of doors, drawers and objects up to which a result stays valid
_MOST_ARMS = 3  # most alternative arm postures, reachable by a reset, that are evaluated
_PRIMITIVES = {"box": BOX, "cylinder": CYLINDER, "sphere": SPHERE}
# Shares of the approach with their costs (steps); the shortest is for narrow places.
_SHARES = ((0.6, 0.0), (1.0, 3.0), (0.35, 2.0))
_LEANS_RAD = (0.35, 0.7, 1.05)  # angles at which an object is placed if not possible upright
_THERE_M = 0.3  # a target within this distance of its goal counts as placed, for the plan
# Distances back out of a shelf at which collisions are checked, with the object lifted past the
# objects in front of it.
_WAY_OUT_M = (0.1, 0.2, 0.3, 0.4)
_LIFTED_M, _GRAZED_M, _CAUGHT_STEPS = np.array([0.0, 0.0, 0.03]), -0.005, 80.0
_IN_THE_WAY_M = 0.3  # nearer neighbours are pushed aside if they block all grasps
_ASIDE_M = 0.2  # offset of the search from an unreachable goal, towards the robot's floor
_DROPS_M = (0.05, 0.1, 0.13)  # heights from which an object is dropped at last, as into a sink


def destination(episode: Episode, index: int) -> np.ndarray | None:
    """Returns the goal (3,) of object `index`, None if it is not a target of the episode."""
    for target in episode.targets:
        if target.object == index:
            return np.array(target.goal)
    return None


def plan_pick(
    scene: Scene,
    index: int,
    goal: np.ndarray | None,
    drive_weight: float = 1.0,
    drive: bool = True,
    arms: Arms = tuple,
) -> Reach | None:
    """Plans the quickest grasp of an object, or None.

    If the neighbours of the object block all grasps, the plan ignores them, so that the robot
    pushes them aside.

    Args:
        scene: present scene.
        index: index of the object.
        goal: (3,) goal of the object; grasps that also allow a quick placement are preferred.
        drive_weight: cost of a step of driving relative to a step of the arm.
        drive: whether to plan the drive too; without it the search is rougher.
        arms: returns postures (7,) to which the arm can be brought first at no cost; called only
            where they may help.
    """
    found = _plan_grasp(scene, index, goal, drive_weight, drive, arms)
    if found is None and drive and scene.held is None:
        away = np.linalg.norm(scene.position - scene.position[index], axis=1)
        rows = np.flatnonzero((away > _IN_THE_WAY_M) | (np.arange(len(away)) == index))
        if len(rows) < len(away):
            at = int(np.flatnonzero(rows == index)[0])
            found = _plan_grasp(scene.only(rows), at, goal, drive_weight, drive, arms)
    return found


def _plan_grasp(
    scene: Scene,
    index: int,
    goal: np.ndarray | None,
    drive_weight: float,
    drive: bool,
    arms: Arms,
) -> Reach | None:
    """Implements `plan_pick` without pushing neighbours aside."""
    search = StanceSearch(scene, scene.position[index], drive_weight=drive_weight)
    targets = touch_targets(scene, index, search.stances)
    after = functools.partial(_steps_out, scene, index) if search.enclosed else None
    later = None if goal is None else later_of(scene, index, goal)
    for last in (False, True) if later is not None else (True,):
        if last and later is not None and later.always:
            break  # no grasp was rejected because of the later placement
        wanted = None if last or later is None else functools.partial(later.steps, targets)
        for margins in LEVELS if drive else LEVELS[:2]:
            find = functools.partial(
                StanceSearch.find,
                margins=margins,
                touching=index,
                wanted=wanted,
                drive=drive,
                after=after,
            )
            found = _cheapest(search, arms, targets, find)
            if found is not None:
                return found
    return None


def _cheapest(
    search: StanceSearch,
    arms: Arms,
    targets: CupTargets,
    find: Callable[..., Reach | None],
) -> Reach | None:
    """Returns the cheapest plan of a query `find` of `StanceSearch.find`, or None.

    In an enclosed place, the query is repeated for those postures of `arms` with the least
    estimated cost.
    """
    best = find(search, targets)
    if best is None or not search.enclosed:
        return best
    others = [search.from_arm(arm) for arm in arms()]
    others.sort(key=lambda other: other.least(targets))
    for other in others[:_MOST_ARMS]:
        found = find(other, targets, bound=best.steps)
        if found is not None and found.steps < best.steps:
            best = found
    return best


def touch_targets(scene: Scene, index: int, stances: Stances) -> CupTargets:
    """Returns all touches of an object as targets; `kind` is the index of the pitch."""
    kind = scene.kinds[index]
    row, point, axis, pitch, extra = touches(
        _PRIMITIVES[kind.primitive],
        np.array(kind.half),
        scene.rotation[index],
        scene.position[index],
        stances.stance,
    )
    along = np.tile(CUP_AXIS, (len(row), 1))
    return CupTargets(
        row, point, along, axis, NO_OFFSET, -APPROACH_M * axis, point, axis, extra, pitch, _SHARES
    )


def reach_to_come(scene: Scene, episode: Episode, arms: Arms = tuple) -> Reach | None:
    """Predicts the next reach of the arm in an episode, None if it is unknown.

    With a held object this is its placement, otherwise the grasp of the first target that is not at
    its goal. The stance is the present base pose or one to which Navigate would drive. `arms` is as
    in `plan_pick`.
    """
    if scene.held is not None:
        goal = destination(episode, scene.held.index)
        return None if goal is None else plan_place(scene, goal, DRIVE_WEIGHT, False, arms)
    left = [t for t in episode.targets if not _is_there(scene, t)]
    if not left:
        return None
    goal = np.array(left[0].goal)
    return plan_pick(scene, left[0].object, goal, DRIVE_WEIGHT, False, arms)


def _is_there(scene: Scene, target: Target) -> bool:
    away = scene.position[target.object] - np.array(target.goal)
    return float(np.linalg.norm(away)) < _THERE_M


class _Later:
    """Control steps of the later placement of an object, by the kind of grasp."""

    def __init__(self, scene: Scene, index: int, goal: np.ndarray) -> None:
        self._index, self._goal = index, goal
        self._scene = dataclasses.replace(scene, arm=REST, held=None)
        self._known: dict[int, float] = {}
        self._search: StanceSearch | None = None

    def still_holds(self, scene: Scene, index: int, goal: np.ndarray) -> bool:
        """Returns whether the results are still valid: nothing except the robot has moved."""
        then = self._scene
        return (
            index == self._index
            and scene.layout == then.layout
            and scene.kinds == then.kinds
            and np.array_equal(goal, self._goal)
            and float(np.abs(np.subtract(scene.joints, then.joints)).max()) < _SAME
            and float(np.abs(scene.position - then.position).max()) < _SAME
            and float(np.abs(scene.rotation - then.rotation).max()) < _SAME
        )

    def steps(self, targets: CupTargets, i: int) -> float:
        """Returns the control steps of the placement after grasp `i`, inf if it is impossible.

        The result of the first evaluated grasp of a pitch is used for all grasps of that pitch.
        """
        kind = int(targets.kind[i])
        if kind not in self._known:
            self._known[kind] = self._found(targets.point[i], targets.axis[i])
        return self._known[kind]

    @property
    def always(self) -> bool:
        """Whether the placement is possible after every grasp evaluated so far."""
        return all(math.isfinite(steps) for steps in self._known.values())

    def _found(self, point: np.ndarray, axis: np.ndarray) -> float:
        scene, index = self._scene, self._index
        held = _held_by(scene, index, point, axis)
        if self._search is None:
            # That the held object narrows passages is left to the planning of the drive.
            self._search = StanceSearch(scene, self._goal, drive_weight=0.0)
        search = self._search.carrying(held)
        targets = standing(search.scene, held, self._goal, search.stances)
        found = search.find(targets, LEVELS[-1], drive=False)
        return math.inf if found is None else found.steps


class _Asked:
    """Cache of the last `_Later`, since successive plans are about the same object."""

    def __init__(self) -> None:
        self._episode: Episode | None = None
        self._last: _Later | None = None

    def begin(self, episode: Episode) -> None:
        """Clears the cache at a new episode, so that no run depends on the previous one."""
        if episode is not self._episode:
            self._episode, self._last = episode, None

    def __call__(self, scene: Scene, index: int, goal: np.ndarray) -> _Later:
        if self._last is None or not self._last.still_holds(scene, index, goal):
            self._last = _Later(scene, index, goal)
        return self._last


later_of = _Asked()


def _steps_out(scene: Scene, index: int, reach: Reach) -> float:
    """Returns the control steps lost after a grasp between shelves if the robot cannot back off."""
    tip, cup = cup_pose(reach.there)
    c, s = math.cos(reach.stance[2]), math.sin(reach.stance[2])
    turn = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]]) @ cup
    base = np.array([reach.stance[0], reach.stance[1], 0.0])
    offset = turn.T @ (scene.position[index] - base) - cup.T @ tip
    held = hold(index, scene.kinds[index], offset, turn.T @ scene.rotation[index])
    ok, lifted = inverse(
        reach.there, tip + _LIFTED_M, CUP_AXIS, cup[:, 0].copy(), reach.there, NO_OFFSET, 60, 0.3
    )
    posture = lifted if ok else reach.there
    footprint = dataclasses.replace(scene, held=held).footprint(posture)
    return steps_to_come_out(footprint, reach.stance, posture)


def steps_to_come_out(footprint: Footprint, base: np.ndarray, posture: np.ndarray) -> float:
    """Returns the control steps that a robot loses if it cannot back straight out of a shelf.

    In that case the held object is led out (`tpsrl.motion.base.tip_tracking`), or the robot has to
    fold its arm inside.

    Args:
        footprint: footprint of the arm posture and the held object.
        base: (3,) base pose.
        posture: (7,) arm posture.
    """
    if all(footprint.margin(*ahead(base, -by)) > _GRAZED_M for by in _WAY_OUT_M):
        return 0.0
    ways = ways_back(footprint, base, cup_pose(posture)[0], np.array(_WAY_OUT_M[-1:]))
    return min(steps_of(ways[0]), _CAUGHT_STEPS) if ways else _CAUGHT_STEPS


def _held_by(scene: Scene, index: int, point: np.ndarray, axis: np.ndarray) -> Held:
    """Returns an object as held after a touch at a point with the cup pointing along an axis."""
    side = np.cross(axis, [0.0, 0.0, 1.0] if abs(axis[2]) < 0.9 else [1.0, 0.0, 0.0])
    side /= np.linalg.norm(side)
    # The hand is assumed upright, as it is when it comes from rest.
    cup = np.column_stack([axis, -side, -np.cross(axis, side)])
    offset = cup.T @ (scene.position[index] - point)
    return hold(index, scene.kinds[index], offset, cup.T @ scene.rotation[index])


def plan_place(
    scene: Scene,
    goal: np.ndarray,
    drive_weight: float = 1.0,
    drive: bool = True,
    arms: Arms = tuple,
) -> Reach | None:
    """Plans the quickest placement of the held object at or near `goal` (3,), or None.

    Upright placements are preferred. The hold may not allow one where the arm cannot bend far
    enough, as at the back of a high table. The object is then released leaning towards the robot or
    away from it, after which a box lies down within the goal's tolerance. If that is impossible
    too, the object is dropped from a small height, and at last next to the goal. The other
    arguments are as in `plan_pick`.
    """
    held = scene.held
    if held is None:
        return None
    search = StanceSearch(scene, goal, drive_weight=drive_weight)
    ways = [(0.0, 0.0), *((lean, 0.0) for lean in _LEANS_RAD), *((0.0, drop) for drop in _DROPS_M)]
    for lean, drop in ways if drive else ways[:1]:
        targets = standing(scene, held, goal, search.stances, lean, drop)
        for margins in LEVELS:
            find = functools.partial(StanceSearch.find, margins=margins, drive=drive)
            found = _cheapest(search, arms, targets, find)
            if found is not None:
                return found
    return _plan_near(scene, goal, drive_weight) if drive else None


def _plan_near(scene: Scene, goal: np.ndarray, drive_weight: float) -> Reach | None:
    """Plans a placement near a goal that is occupied or out of reach, or None."""
    assert scene.held is not None
    floor = nearest_floor(scene, goal)
    away = floor - goal[:2]
    length = float(np.linalg.norm(away))
    point = np.array(goal)
    point[:2] += min(_ASIDE_M, length) * away / max(length, 1e-9)
    search = StanceSearch(scene, point, drive_weight=drive_weight)
    for drop in (0.0, *_DROPS_M):
        targets = standing(scene, scene.held, goal, search.stances, drop=drop, beyond=True)
        found = search.find(targets, LEVELS[-1])
        if found is not None:
            return found
    return None
