"""How to grasp an object, and how to put the held one down.

A grasp is chosen with a look at where the object is to go, since the angle of the cup to the
object stays the same until it is let go.
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

# Postures (7,) that the arm can be brought to.
Arms = Callable[[], Sequence[np.ndarray]]

# What a step of the drive counts for Navigate beside one of the skill that follows.
DRIVE_WEIGHT = 0.5
_SAME = 0.02  # rad, m: by so much doors, drawers and objects may have moved
_MOST_ARMS = 3  # from which it is found out, of those that a reset can come to
_PRIMITIVES = {"box": BOX, "cylinder": CYLINDER, "sphere": SPHERE}
_SHARES = ((0.6, 0.0), (1.0, 3.0), (0.35, 2.0))  # of the approach, the shortest for narrow places
_LEANS_RAD = (0.35, 0.7, 1.05)  # an object that cannot stand upright is put down leaning
_THERE_M = 0.3  # from the goal a target is where it belongs, for the plan
# Out of a shelf: how far the robot backs off, past what stands before the object, which is lifted.
_WAY_OUT_M = (0.1, 0.2, 0.3, 0.4)
_LIFTED_M, _GRAZED_M, _CAUGHT_STEPS = np.array([0.0, 0.0, 0.03]), -0.005, 80.0
_IN_THE_WAY_M = 0.3  # neighbours
_ASIDE_M = 0.2  # from a goal that cannot be had, towards where the robot can stand
_DROPS_M = (0.05, 0.1, 0.13)  # failing that it is let fall, as into a sink


def destination(episode: Episode, index: int) -> np.ndarray | None:
    """Where object `index` is to go (3,), if it is one of the episode's targets."""
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
    """The quickest way to grasp object `index`, or None.

    With a `goal` (3,) grasps are preferred with which the object can be put there quickly too.
    `drive_weight` is what a step of driving counts beside one of the arm; where `drive` is False
    it is not found out how to get there, and not looked everywhere. The arm can be brought to the
    postures (7,) that `arms` returns first, which costs nothing; it is called where that may help.

    Where neighbours leave no way to an object they are pushed aside.
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
    """See `plan_pick`."""
    search = StanceSearch(scene, scene.position[index], drive_weight=drive_weight)
    targets = touch_targets(scene, index, search.stances)
    after = functools.partial(_steps_out, scene, index) if search.enclosed else None
    later = None if goal is None else later_of(scene, index, goal)
    for last in (False, True) if later is not None else (True,):
        if last and later is not None and later.always:
            break  # nothing was left out for what comes later
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
    """The cheapest way that `find` finds, `StanceSearch.find` with its query, or None.

    With the arm as it is, or in the postures from which it seems to have the least to do.
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
    """All ways to touch an object; `kind` is the number of the pitch."""
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
    """What the arm will be asked for next, None where that is not known.

    With an object in the hand, how it comes to its goal, else how the first target is come to that
    is not at its goal; from where Navigate would go for it, or from here. `arms` as in `plan_pick`.
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
    """The steps that putting an object down will take, by the kind of grasp."""

    def __init__(self, scene: Scene, index: int, goal: np.ndarray) -> None:
        self._index, self._goal = index, goal
        self._scene = dataclasses.replace(scene, arm=REST, held=None)
        self._known: dict[int, float] = {}
        self._search: StanceSearch | None = None

    def still_holds(self, scene: Scene, index: int, goal: np.ndarray) -> bool:
        """Whether the question is still the same: nothing but the robot has moved."""
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
        """Control steps of the arm after grasping as in target `i`, inf where it cannot be done.

        All grasps of one pitch count as the first of them that is asked about.
        """
        kind = int(targets.kind[i])
        if kind not in self._known:
            self._known[kind] = self._found(targets.point[i], targets.axis[i])
        return self._known[kind]

    @property
    def always(self) -> bool:
        """Whether it can be put down after every grasp that was asked about."""
        return all(math.isfinite(steps) for steps in self._known.values())

    def _found(self, point: np.ndarray, axis: np.ndarray) -> float:
        scene, index = self._scene, self._index
        held = _held_by(scene, index, point, axis)
        if self._search is None:
            # What is held makes the way there narrower, which is left to the drive.
            self._search = StanceSearch(scene, self._goal, drive_weight=0.0)
        search = self._search.carrying(held)
        targets = standing(search.scene, held, self._goal, search.stances)
        found = search.find(targets, LEVELS[-1], drive=False)
        return math.inf if found is None else found.steps


class _Asked:
    """Keeps the last `_Later`: one plan after another is about the same object."""

    def __init__(self) -> None:
        self._episode: Episode | None = None
        self._last: _Later | None = None

    def begin(self, episode: Episode) -> None:
        """Forgets what belongs to another episode: no run depends on the one before."""
        if episode is not self._episode:
            self._episode, self._last = episode, None

    def __call__(self, scene: Scene, index: int, goal: np.ndarray) -> _Later:
        if self._last is None or not self._last.still_holds(scene, index, goal):
            self._last = _Later(scene, index, goal)
        return self._last


later_of = _Asked()


def _steps_out(scene: Scene, index: int, reach: Reach) -> float:
    """Steps lost where a robot that has grasped an object between shelves cannot back off."""
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
    """Steps that a robot which holds something between shelves loses if it cannot just back off.

    It is led out then (`tpsrl.motion.base.tip_tracking`), or has to fold its arm inside.

    Args:
        footprint: of the arm in the posture, with what it holds.
        base: (3,) pose.
        posture: (7,) of the arm.
    """
    if all(footprint.margin(*ahead(base, -by)) > _GRAZED_M for by in _WAY_OUT_M):
        return 0.0
    ways = ways_back(footprint, base, cup_pose(posture)[0], np.array(_WAY_OUT_M[-1:]))
    return min(steps_of(ways[0]), _CAUGHT_STEPS) if ways else _CAUGHT_STEPS


def _held_by(scene: Scene, index: int, point: np.ndarray, axis: np.ndarray) -> Held:
    """An object as it would be held when the cup touches it at a point, pointing along an axis."""
    side = np.cross(axis, [0.0, 0.0, 1.0] if abs(axis[2]) < 0.9 else [1.0, 0.0, 0.0])
    side /= np.linalg.norm(side)
    # The hand is the right way up, as it is when it comes from rest.
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
    """The quickest way to put the held object down at `goal` (3,) or a little before it, or None.

    Upright if that can be done. How the cup holds the object may not allow it where the arm
    cannot bend like that, as far back on a high table; it is then let go leaning, towards the
    robot or away from it, which a box survives by lying down within the goal's tolerance; failing
    that it is let fall from a little above.
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
    """As `plan_place`, for a goal that is taken or that the arm does not reach: not far from it."""
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
