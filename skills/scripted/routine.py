"""A controller written as a generator: it yields actions and receives world states."""

import abc
import dataclasses
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from skills.core.interface import SkillGoal
from skills.scripted.motion import duration, plan_path
from skills.scripted.navigation import STOP_STEPS, Follower, Leg
from skills.scripted.scene import Scene, look
from skills.scripted.search import Reach, ahead, drivable, posture_at
from skills.scripted.together import plan_together
from tpsrl.world import action as act
from tpsrl.world.collision import REST, ArmChecker
from tpsrl.world.episode import Episode
from tpsrl.world.fetch import REST_EE
from tpsrl.world.kinematics import LOWER, UPPER, cup_pose, inverse
from tpsrl.world.reach import CUP_AXIS, NO_OFFSET, point_to_base
from tpsrl.world.state import WorldState

Steps = Generator[np.ndarray, WorldState, None]

_SETTLED_RAD = 0.012
_SETTLE_STEPS = 15
_BLOCKED_STEPS = 12
_PUSH_N, _PUSH_STEPS = 100.0, 4  # pushing harder and longer than this is no brush
PATH_MARGINS_M = (0.02, 0.008, 0.0)
_SAVING_STEPS = 25
_BACK_OFFS_M = (0.0, 0.1, 0.2, 0.3, 0.4, 0.55)  # how far to back off before the arm is folded
_LEAST_FOLD_STEPS = 45.0
_RISES_M = tuple(0.04 * k for k in range(1, 9))
# Around the resting point, inside the 0.15 m that count as at rest.
_REST_SHIFTS = (
    (0.0, 0.0, 0.0),
    (0.06, 0.0, 0.11),
    (0.08, 0.0, 0.08),
    (0.11, 0.0, 0.0),
    (0.05, 0.0, -0.1),
    (0.0, 0.1, 0.05),
    (0.0, -0.1, 0.05),
)


class Blocked(Exception):
    """The arm or base does not get on; the routine plans anew."""


class Routine(abc.ABC):
    """Base of the scripted skills: `run` is the skill, as a generator of actions."""

    depth_size: tuple[int, int] | None = None

    def __init__(self) -> None:
        self._steps: Steps | None = None
        self._diagnosis: dict[str, Any] = {}
        self._phases: dict[str, int] = {}

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """Starts the skill from a world state of batch one."""
        self.episode, self.goal, self.world = episode, goal, world
        self.grip = 1.0 if world.held[0] >= 0 else -1.0
        self._command = np.array(world.arm[0], dtype=np.float64)
        self._diagnosis, self._phases = {}, {}
        self.phase = "start"
        self._steps = self.run()
        self._started = False

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        """The action (11,) for this control step; sets stop once the routine has ended.

        A routine also ends where it is blocked and does not plan anew itself.
        """
        self.world = world
        if self._steps is not None:
            try:
                action = self._steps.send(world) if self._started else next(self._steps)
                self._started = True
                self._phases[self.phase] = self._phases.get(self.phase, 0) + 1
                return action
            except StopIteration:
                self._steps = None
            except Blocked as blocked:
                self.note(f"blocked_{blocked}")
                self._steps = None
        final = self.still()
        final[act.STOP] = 1.0
        return final

    def diagnosis(self) -> dict[str, Any]:
        """How often what went wrong, and control steps by phase ("phases")."""
        return {**self._diagnosis, "phases": dict(self._phases)}

    @abc.abstractmethod
    def run(self) -> Steps:
        """The skill; yields one action a control step."""

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

    def wait(self, steps: int) -> Steps:
        """Stands still."""
        for _ in range(steps):
            self.world = yield self.still()

    def drive(self, legs: list[Leg]) -> Steps:
        """Drives along legs.

        Raises:
            Blocked: the base stopped getting on.
        """
        yield from self._move(_Driving(legs), None)

    def follow(self, path: np.ndarray, until_held: bool = False) -> Steps:
        """Moves the arm along way-points (k, 7), all joints together, the slowest at full speed.

        Ends early when something is held, if `until_held`.

        Raises:
            Blocked: the arm stays behind its command.
        """
        yield from self._move(None, _Following(path), until_held=until_held)

    def drive_and_follow(self, legs: list[Leg], path: np.ndarray) -> Steps:
        """Drives along legs and moves the arm along way-points (k, 7), at once where that is free.

        Where it is not, the one starts later than the other, at worst the arm at the end.

        Raises:
            Blocked: base or arm do not get on.
        """
        scene = self.look()
        way = plan_together(scene, legs, np.vstack([self._command[None], path]))
        if way is None:
            yield from self.drive(legs)
            yield from self.follow(path)
        else:
            yield from self._move(_Driving(legs), _Following(way.path), delay=way.delay)

    def _move(
        self,
        driving: "_Driving | None",
        following: "_Following | None",
        delay: int = 0,
        until_held: bool = False,
    ) -> Steps:
        """One action a step for base and arm until both have arrived.

        The arm starts `delay` steps later than the base, or, where that is negative, earlier.
        """
        step = 0
        while True:
            if until_held and max(self.world.held[0], self.world.held_joint[0]) >= 0:
                return
            action = self.still()
            base_moves = driving is not None and (step < -delay or driving.step(self.world, action))
            arm_moves = following is not None and (
                (base_moves and step < delay) or following.step(self.world, action, self._command)
            )
            if not base_moves and not arm_moves:
                return
            step += 1
            self.world = yield action

    def settle(self) -> Steps:
        """Waits until the arm has caught up with its command, half a second at most."""
        for _ in range(_SETTLE_STEPS):
            if float(np.abs(self._command - self.world.arm[0]).max()) < _SETTLED_RAD:
                return
            self.world = yield self.still()

    def resync(self) -> None:
        """Takes the arm's present posture for what was commanded."""
        self._command = np.array(self.world.arm[0], dtype=np.float64)

    def path_to(self, posture: np.ndarray, checker: ArmChecker) -> np.ndarray | None:
        """A free path (k, 7) from where the arm is, or None.

        The widest margin for which there is a path, unless a narrower one saves a second or more.
        """
        start = np.array(self.world.arm[0])
        direct = duration(np.stack([start, posture]))
        touching = min(checker.clearance(start), 0.0) - 0.004
        best: np.ndarray | None = None
        for margin in (*PATH_MARGINS_M, touching):
            if best is not None and (margin == touching or duration(best) < direct + _SAVING_STEPS):
                break
            path = plan_path(checker, start, posture, margin)
            if path is None:
                continue
            if best is None or duration(path) < duration(best) - _SAVING_STEPS:
                best = path
                if margin < PATH_MARGINS_M[0]:
                    self.note("tight_path" if margin >= 0 else "touching_path")
        return None if best is None else best[1:]

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
        least = min(footprint.margin(*scene.base), 0.0) - 0.01
        best, chosen = np.inf, None
        for backing in _BACK_OFFS_M:
            steps = backing / act.STEP_M + STOP_STEPS if backing else 0.0
            if steps + _LEAST_FOLD_STEPS >= best:
                break
            base = ahead(scene.base, -backing)
            if footprint.margin(*base) < (least if backing < 0.15 else 0.0):
                break
            there = dataclasses.replace(scene, base=base)
            checker = there.checker(base)
            for posture in rest_postures(there, checker, only_drivable=backing < _BACK_OFFS_M[-1]):
                path = self.path_to(posture, checker)
                if path is not None:
                    steps += duration(np.vstack([scene.arm[None], path]))
                    if steps < best:
                        best, chosen = steps, (backing, path)
                    break
        return chosen

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
            yield from self.follow(np.array(rising))

    def reach(self, plan: Callable[[Scene], Reach | None]) -> Generator[Any, Any, Reach | None]:
        """Drives and moves the arm to the ready posture of what `plan` finds; None: nothing."""
        reach = plan(self.look())
        if reach is None:
            return None
        self.phase = "drive"
        if reach.legs is not None:
            self.note("moved_base")
            yield from self.drive_and_follow(reach.legs, self._ready_path(reach.via, reach.first))
            again = plan(self.look())
            if again is not None and again.legs is None:
                reach = again
        self.phase = "ready"
        yield from self.follow(self._ready_path(reach.via))
        if reach.advance:
            self.phase = "advance"
            end, yaw = reach.stance, reach.stance[2]
            yield from self.drive([Leg(end[0], end[1], yaw, 1), Leg(end[0], end[1], yaw, 1)])
        if reach.via is not reach.ready:
            self.phase = "ready"
            yield from self.follow(self._ready_path(reach.ready))
        return reach


class _Driving:
    """The base's part of an action, step by step, along legs."""

    def __init__(self, legs: list[Leg]) -> None:
        self._follower = Follower(legs)
        self._slow = self._pushed = 0

    def step(self, world: WorldState, action: np.ndarray) -> bool:
        """Writes the base's entries; whether there was still something to do."""
        base, velocity = world.base[0], world.base_velocity[0]
        linear, angular = self._follower.command(base, velocity)
        if self._follower.done:
            return False
        moving = abs(velocity[0]) + abs(velocity[1]) + abs(velocity[2]) > 0.05
        self._slow = 0 if moving else self._slow + 1
        self._pushed = self._pushed + 1 if world.force[0] > _PUSH_N else 0
        if self._slow > _BLOCKED_STEPS or self._pushed > _PUSH_STEPS:
            raise Blocked("drive")
        action[act.BASE] = linear, angular
        return True


class _Following:
    """The arm's part of an action, step by step, along way-points (k, 7)."""

    def __init__(self, path: np.ndarray) -> None:
        self._path = list(path)
        self._behind = 0

    def step(self, world: WorldState, action: np.ndarray, command: np.ndarray) -> bool:
        """Writes the arm's entries and moves `command` (7,) on; whether anything was left to do."""
        while self._path:
            delta = self._path[0] - command
            span = float(np.abs(delta).max())
            if span >= 1e-6:
                break
            self._path.pop(0)
        if not self._path:
            return False
        step = delta * min(1.0, act.ARM_DELTA_RAD / span)
        action[act.ARM] = step / act.ARM_DELTA_RAD
        arm = np.asarray(world.arm[0])
        # As the engine bounds its own target.
        low, high = arm - act.ARM_LEASH_RAD, arm + act.ARM_LEASH_RAD
        command[:] = np.clip(np.clip(command + step, low, high), LOWER, UPPER)
        lag = float(np.abs(command - arm).max())
        self._behind = self._behind + 1 if lag > 0.8 * act.ARM_LEASH_RAD else 0
        if self._behind > _BLOCKED_STEPS:
            raise Blocked("arm")
        return True


def rest_postures(scene: Scene, checker: ArmChecker, only_drivable: bool) -> list[np.ndarray]:
    """Postures with the cup near the resting point, the quickest first."""
    found = []
    for shift in _REST_SHIFTS:
        q = posture_at(np.add(REST_EE, shift), scene.arm)
        if q is not None and checker.free(q, PATH_MARGINS_M[1]):
            found.append(q)
    if checker.free(REST, PATH_MARGINS_M[1]):
        found.append(REST)
    found.sort(key=lambda q: float(np.abs(q - scene.arm).max()))
    if not only_drivable:
        return found
    return [q for q in found if drivable(scene.footprint(q), scene.base, 0.0)]


def at_rest(scene: Scene, ee_pos: np.ndarray) -> bool:
    """Whether the cup is near its resting point (0.15 m) and the robot can drive off like this."""
    away = float(np.linalg.norm(point_to_base(scene.base, ee_pos) - REST_EE))
    return away < 0.14 and drivable(scene.footprint(scene.arm), scene.base, 0.0)
