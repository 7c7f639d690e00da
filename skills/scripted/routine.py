"""A controller written as a generator: it yields actions and receives world states."""

import abc
import dataclasses
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import numpy as np

from skills.core.interface import SkillGoal
from skills.scripted.freeing import way_out
from skills.scripted.grasps import posture_to_come
from skills.scripted.motion import MARGINS_M, duration, edge_free, widest_path
from skills.scripted.navigation import STOP_STEPS, Leg, plan_drive
from skills.scripted.resting import rest_postures
from skills.scripted.scene import Scene, look
from skills.scripted.search import Reach, drivable
from skills.scripted.stances import ahead
from skills.scripted.together import plan_together
from skills.scripted.tracking import ArmTracker, BaseTracker, Blocked, End, OffPlan
from tpsrl.world import action as act
from tpsrl.world.collision import REST, ArmChecker
from tpsrl.world.episode import Episode
from tpsrl.world.fetch import REST_EE
from tpsrl.world.footprint import Footprint
from tpsrl.world.kinematics import cup_pose, inverse
from tpsrl.world.reach import CUP_AXIS, NO_OFFSET, point_to_base
from tpsrl.world.state import WorldState

Steps = Generator[np.ndarray, WorldState, None]
# A whole skill: returns whether it has done what it is for.
Run = Generator[np.ndarray, WorldState, bool]
Found = TypeVar("Found")

# What the way to the next thing counts beside the way to rest: steps of the skill that are gone at
# most, weight.
_LATER = ((90, 0.6), (115, 0.25), (140, 0.1))
AT_REST_M = 0.14  # the skills ask for 0.15 m
_TRIES = 4  # plans without a step between them
_STILL_RAD = 0.002  # of a joint in a step
_SETTLE_STEPS = 15
_BACK_OFFS_M = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65)  # how far to back off before the arm is folded
_NARROW_M = 0.03  # spheres are a little fatter than what they stand for
_MAX_PATHS = 2  # around something, to postures at rest
_LEAST_FOLD_STEPS = 45.0
_FARTHER_M = 0.5  # than at the beginning of a drive; another place may be the better one by then
_RISES_M = tuple(0.04 * k for k in range(1, 9))


class Routine(abc.ABC):
    """Base of the scripted skills: `run` is the skill, as a generator of actions."""

    depth_size: tuple[int, int] | None = None

    def __init__(self) -> None:
        self._steps: Run | None = None
        self._diagnosis: dict[str, Any] = {}
        self._phases: dict[str, int] = {}

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """Starts the skill from a world state of batch one."""
        self.episode, self.goal, self.world = episode, goal, world
        self.grip = 1.0 if world.held[0] >= 0 else -1.0
        self._diagnosis, self._phases = {}, {}
        self.phase = "start"
        self._steps = None
        self._fruitless = self._plans = 0
        self._end: End | None = None

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        """The action (11,) for this control step; sets stop once there is nothing left to do.

        A robot that its own plans have not brought on for several times gives up.
        """
        action, valid = self.label(world)
        if not valid or self._fruitless > _TRIES:
            self._steps = None
            return self.stopped()[0]
        return action

    def label(self, world: WorldState) -> tuple[np.ndarray, bool]:
        """What the routine would do in a world state, whoever brought it about, and if it knows.

        The plan of the call before is kept while the robot is near where it has it and what it
        rests on stands where it stood. Otherwise the routine plans anew from the present state.

        Where the skill is done, or no way was found, that is so until something has changed.

        Args:
            world: batch of one, of the same episode as at `begin`.

        Returns:
            The action (11,) with stop where the skill is done; and whether it is good for anything:
            where no way is found the action is to stand still.
        """
        self.world = world
        if self._end is not None and self._end.holds(world):
            return self.stopped() if self._end.done else (self.still(), False)
        self._end = None
        if self._steps is not None and self.outdated():
            self.note("outdated")
            self._steps = None
        lost = True
        for _ in range(2):
            planned = self._steps is None
            try:
                if self._steps is None:
                    self.grip = 1.0 if world.held[0] >= 0 else -1.0
                    self._fruitless += 1
                    self._steps = self.run()
                    action = next(self._steps)
                    self._plans += 1
                else:
                    action = self._steps.send(world)
                    self._fruitless = 0
                self._phases[self.phase] = self._phases.get(self.phase, 0) + 1
                return action, True
            except StopIteration as end:
                self._steps = None
                if end.value:
                    self._end = End(world, True)
                    return self.stopped()
            except (Blocked, OffPlan) as off:
                self.note(f"{'blocked' if isinstance(off, Blocked) else 'off'}_{off}")
                self._steps = None
                lost = isinstance(off, Blocked)
            if planned:
                break
        if lost:
            self._end = End(world, False)
        return self.still(), False

    def stopped(self) -> tuple[np.ndarray, bool]:
        """The label of what is done."""
        action = self.still()
        action[act.STOP] = 1.0
        return action, True

    def diagnosis(self) -> dict[str, Any]:
        """How often what went wrong, how many "plans", and control steps by phase ("phases")."""
        return {**self._diagnosis, "plans": self._plans, "phases": dict(self._phases)}

    def outdated(self) -> bool:
        """Whether the plan rests on what is no longer so."""
        return False

    @abc.abstractmethod
    def run(self) -> Run:
        """The skill from the present state on, whatever it is; yields one action a control step.

        Returns whether it has done what it is for; where not, it is begun anew.
        """

    # -- pieces that skills are made of --------------------------------------------------------

    def note(self, problem: str) -> None:
        """Counts a problem for the diagnosis."""
        self._diagnosis[problem] = self._diagnosis.get(problem, 0) + 1

    def look(self) -> Scene:
        """The scene as it is now."""
        return look(self.episode, self.world)

    def still(self) -> np.ndarray:
        """The action that moves nothing and keeps the grip."""
        action = np.zeros(act.SIZE)
        action[act.GRIP] = self.grip
        action[act.STOP] = -1.0
        return action

    @property
    def rest_m(self) -> float:
        """How far the cup is from its resting point, m."""
        away = point_to_base(self.world.base[0], self.world.ee_pos[0]) - REST_EE
        return float(np.linalg.norm(away))

    def wait(self, steps: int) -> Steps:
        """Stands still."""
        for _ in range(steps):
            self.world = yield self.still()

    def drive(self, legs: list[Leg]) -> Steps:
        """Drives along legs.

        Raises:
            Blocked: the base stopped getting on.
            OffPlan: the base is somewhere else.
        """
        yield from self._move(BaseTracker(legs, self.world.base[0], self._footprint), None)

    def follow(self, path: np.ndarray, until_held: bool = False, through: bool = False) -> Steps:
        """Moves the arm along way-points (k, 7), all joints together, the slowest at full speed.

        Ends early when something is held, if `until_held`. Where something follows that need not
        begin exactly at its end, the arm goes `through`.

        Raises:
            Blocked: the arm stopped getting on.
            OffPlan: the arm is somewhere else.
        """
        yield from self._move(None, self._arm(path, through), until_held=until_held)

    def drive_and_follow(self, legs: list[Leg], path: np.ndarray) -> Steps:
        """Drives along legs and moves the arm along way-points (k, 7), at once where that is free.

        Where it is not, the one starts later than the other, at worst the arm at the end.

        Raises:
            Blocked: base or arm do not get on.
            OffPlan: base or arm are somewhere else.
        """
        scene = self.look()
        way = plan_together(scene, legs, np.vstack([scene.arm[None], path]))
        if way is None:
            yield from self.drive(legs)
            yield from self.follow(path)
        else:
            base = BaseTracker(legs, scene.base, self._footprint)
            yield from self._move(base, self._arm(way.path), delay=way.delay)

    def travel(self, legs: list[Leg], path: np.ndarray | None = None) -> Steps:
        """As `drive_and_follow`, or `drive` without a path; returns to the way from off it.

        That takes a fraction of planning anew, and what is done there stays the same.

        Raises:
            Blocked: base or arm do not get on.
            OffPlan: there is no other way to that place, or it is much farther by now.
        """
        last = legs[-1]
        place = np.array([last.x, last.y, last.heading])
        most = self._away(place) + _FARTHER_M
        while True:
            before = self.world
            try:
                if path is None:
                    yield from self.drive(legs)
                else:
                    yield from self.drive_and_follow(legs, path)
                return
            except OffPlan:
                if self.world is before or self._away(place) > most:
                    raise
                scene = self.look()
                again = plan_drive(scene.footprint(scene.arm), scene.base, place)
                if again is None:
                    raise
                if path is not None:
                    path = self.path_to(path[-1], scene.checker(place))
                    if path is None:
                        raise
                self.note("drove_anew")
                legs = again

    def _away(self, place: np.ndarray) -> float:
        """How far (m) the base is from a pose (3,)."""
        return float(np.linalg.norm(self.world.base[0, :2] - place[:2]))

    def _footprint(self) -> Footprint:
        return self.look().footprint(self.world.arm[0])

    def _arm(self, path: np.ndarray, through: bool = False) -> ArmTracker:
        return ArmTracker(np.vstack([self.world.arm[0][None], path]), through)

    def _move(
        self,
        base: BaseTracker | None,
        arm: ArmTracker | None,
        delay: int = 0,
        until_held: bool = False,
    ) -> Steps:
        """One action a step for base and arm until both have arrived.

        The arm starts when the base has `delay` steps behind it, or, where that is negative, the
        base when the arm has so many.
        """
        while True:
            if until_held and max(self.world.held[0], self.world.held_joint[0]) >= 0:
                return
            action = self.still()
            base_moves = base is not None
            if base is not None and (arm is None or arm.steps >= -delay):
                base_moves = base.step(self.world, action)
            arm_moves = arm is not None
            if arm is not None and (not base_moves or base is None or base.steps >= delay):
                arm_moves = arm.step(self.world, action)
            if not base_moves and not arm_moves:
                return
            self.world = yield action

    def settle(self) -> Steps:
        """Waits until the arm is still, half a second at most."""
        for _ in range(_SETTLE_STEPS):
            before = np.array(self.world.arm[0])
            self.world = yield self.still()
            if float(np.abs(self.world.arm[0] - before).max()) < _STILL_RAD:
                return

    def path_to(self, posture: np.ndarray, checker: ArmChecker) -> np.ndarray | None:
        """A free path (k, 7) from where the arm is, or None; see `motion.widest_path`."""
        found = widest_path(checker, np.array(self.world.arm[0]), posture)
        if found is None:
            return None
        path, margin = found
        if margin < MARGINS_M[0]:
            self.note("tight_path" if margin >= 0 else "touching_path")
        return path[1:]

    def to_rest(self) -> Steps:
        """Brings the cup near its resting point by the shortest free way.

        The skill asks for the end effector within 0.15 m of the point, in any posture, so the
        nearest one is looked for with which the robot can drive off. Where there is none, as over
        a sink with a tall box in the cup, it rises first.
        """
        self.phase = "rest"
        way = self._way_to_rest()
        if way is None:
            yield from self.rise()
            way = self._way_to_rest()
        if way is None:
            self.note("no_path_to_rest")
            yield from self.follow(REST[None])
            return
        backing, path = way
        if backing:
            self.note("backed_off")
            x, y, yaw = ahead(self.world.base[0], -backing)
            yield from self.drive_and_follow([Leg(x, y, yaw, -1)] * 2, path)
        else:
            yield from self.follow(path)

    def _way_to_rest(self) -> tuple[float, np.ndarray] | None:
        """How far to back off (m), and the arm's path (k, 7) from there; the quickest, or None.

        Backing off takes a few steps, and folding the arm between shelves many.
        """
        scene = self.look()
        footprint = scene.footprint(scene.arm)
        start = footprint.margin(*scene.base)
        least = min(start, 0.0) - _NARROW_M
        best, chosen = np.inf, None
        later, _ = posture_to_come(scene, self.episode)
        spent = sum(self._phases.values())
        weight = next((weight for most, weight in _LATER if spent < most), 0.0)
        for backing in _BACK_OFFS_M:
            steps = backing / act.STEP_M + STOP_STEPS if backing else 0.0
            if steps + _LEAST_FOLD_STEPS >= best:
                break
            base = ahead(scene.base, -backing)
            margin = footprint.margin(*base)
            if margin < least:
                break
            if margin < min(0.0, start):
                continue  # backing on through a narrow place may do
            there = dataclasses.replace(scene, base=base)
            checker = there.checker(base)
            path = self._fold(there, checker, backing < _BACK_OFFS_M[-2], later, weight)
            if path is not None:
                steps += duration(np.vstack([scene.arm[None], path]))
                if steps < best:
                    best, chosen = steps, (backing, path)
        return chosen

    def _fold(
        self,
        scene: Scene,
        checker: ArmChecker,
        only_drivable: bool,
        later: np.ndarray | None,
        weight: float,
    ) -> np.ndarray | None:
        """The arm's way (k, 7) to rest, straight if there is a straight one, or None."""
        postures = resting(scene, checker, only_drivable, later, weight)
        for posture in postures:
            if edge_free(checker, scene.arm, posture, MARGINS_M[1]):
                return posture[None]
        paths = (self.path_to(posture, checker) for posture in postures[:_MAX_PATHS])
        return min((p for p in paths if p is not None), key=duration, default=None)

    def _ready_path(self, posture: np.ndarray, base: np.ndarray | None = None) -> np.ndarray:
        """The arm's way (k, 7) to a posture, from the present base pose or another."""
        scene = self.look()
        path = self.path_to(posture, scene.checker(scene.base if base is None else base))
        if path is None:
            self.note("no_path_to_ready")
            return posture[None]
        return path

    def rise(self) -> Steps:
        """Lifts the cup straight up until the robot could drive off."""
        self.phase = "rise"
        scene = self.look()
        checker = scene.checker(scene.base)
        least = min(0.0, checker.clearance(scene.arm)) - 0.005
        tip, _ = cup_pose(scene.arm)
        q, rising = scene.arm, []
        for height in _RISES_M:
            if drivable(scene.footprint(q), scene.base, -0.01):
                break
            point = tip + np.array([0.0, 0.0, height])
            ok, q = inverse(q, point, CUP_AXIS, CUP_AXIS, q, NO_OFFSET, 60, 0.0)
            if not ok or not checker.free(q, least):
                break
            rising.append(q)
        if rising:
            self.note("rose")
            yield from self.follow(np.array(rising), through=True)

    def find(
        self, plan: Callable[[Scene], Found | None], moves_arm: bool = True
    ) -> Generator[np.ndarray, WorldState, Found | None]:
        """What `plan` finds from here, failing that from where the robot stands free, at rest."""
        found = plan(self.look())
        if found is not None:
            return found
        scene = self.look()
        legs = way_out(scene.footprint(scene.arm), scene.base)
        if legs is not None:
            self.phase = "free"
            self.note("came_free")
            yield from self.drive(legs)
        elif moves_arm and self.rest_m > AT_REST_M:
            yield from self.to_rest()
        else:
            return None
        return plan(self.look())

    def reach(self, plan: Callable[[Scene], Reach | None]) -> Generator[Any, Any, Reach | None]:
        """Drives and moves the arm to the ready posture of what `plan` finds; None: nothing."""
        reach = yield from self.find(plan)
        if reach is None:
            return None
        self.phase = "drive"
        if reach.legs is not None:
            self.note("moved_base")
            yield from self.travel(reach.legs, reach.path)
            again = plan(self.look())
            if again is not None and again.legs is None:
                reach = again
        self.phase = "ready"
        above = reach.via is not reach.ready
        yield from self.follow(self._ready_path(reach.via), through=above)
        if reach.advance:
            self.phase = "advance"
            end, yaw = reach.stance, reach.stance[2]
            yield from self.drive([Leg(end[0], end[1], yaw, 1), Leg(end[0], end[1], yaw, 1)])
        if above:
            self.phase = "ready"
            yield from self.follow(self._ready_path(reach.ready))
        return reach


def resting(
    scene: Scene,
    checker: ArmChecker,
    only_drivable: bool,
    later: np.ndarray | None = None,
    weight: float = _LATER[-1][1],
    most: float = np.inf,
) -> list[np.ndarray]:
    """Free resting postures at a base pose, the best first; those that let the robot drive off.

    `later`, `weight` and `most` as in `rest_postures`.
    """
    found = rest_postures(scene, checker, MARGINS_M[1], later, weight, most)
    if not only_drivable:
        return found
    return [q for q in found if drivable(scene.footprint(q), scene.base, 0.0)]


def at_rest(scene: Scene, ee_pos: np.ndarray) -> bool:
    """Whether the cup is near its resting point (0.15 m) and the robot can drive off like this."""
    away = float(np.linalg.norm(point_to_base(scene.base, ee_pos) - REST_EE))
    return away < AT_REST_M and drivable(scene.footprint(scene.arm), scene.base, 0.0)
