"""Open and close: take hold of a face, or lean on it, drive, let go, back to rest.

What comes next is decided by the state of the world, so a skill can be begun anew at any time:
with the cup on the handle, the joint half open, or the robot wherever something has pushed it.
"""

import abc
import dataclasses
import math

import numpy as np

from skills.scripted.folding import resting
from skills.scripted.moves import Steps
from skills.scripted.routine import Routine, Run
from tpsrl.motion.base.driving import Leg
from tpsrl.motion.base.stances import ahead
from tpsrl.motion.base.tip_tracking import tip_in_world
from tpsrl.motion.doors.door_grasps import RETREAT_M, Approach, open_goal, plan_approach
from tpsrl.motion.doors.door_motion import foresee, hand_to_front
from tpsrl.motion.doors.holds import PUSH_GAP_M, off_face
from tpsrl.motion.tracking import Blocked
from tpsrl.world.action import CONTROL_HZ
from tpsrl.world.geometry import quat_matrix
from tpsrl.world.handles import Handle, handle
from tpsrl.world.kinematics import cup_pose
from tpsrl.world.reach import point_to_base, to_base
from tpsrl.world.state import WorldState

# The cup comes on to a face quickly, brakes (m/s2), and halves the last few centimetres with
# nearly every step, so that it touches without a bump.
_FAST_MPS, _BRAKE_MPS2, _NEARING = 0.8, 4.0, 12.0
_TOUCH_MPS, _PUSH_MPS = 0.03, 0.06
_ROUND_M = 0.008  # by which the rim of a cup stands out over a sphere in it
_PRESS_M, _CONTACT_N = 0.03, 300.0  # the face is reached, whatever the plan said
_SPEED_MPS, _SPEED_UP_MPS2, _SLOW_DOWN_MPS2 = 1.2, 4.0, 2.5  # of what is moved, at the handle
_LAST_MPS = 0.06
_AIM_GAIN = 4.0  # 1/s, from the tip's error beside its way to its velocity
_PULL_GAIN = 4.0  # 1/s, from the arm's deflection to the base's velocity
_STUCK_STEPS, _STUCK, _NEARER_M = 15, 0.002, 0.0005
_GONE = 0.05  # m or rad by which something else has moved the face
_CALM = 0.003  # m or rad in a step: a door that swings faster would run into the cup
_LIFT_OFF_M, _LIFT_OFF_MPS = 0.06, 0.8
_BESIDE_M = 0.5  # farther from the marker than this, the hand is not at the face
_RETREATS_M = (RETREAT_M, 0.25, 0.15)
_TOUCHING_M = -0.02
_MOVED = 0.004  # m or rad, by which what is pushed shows that it gives way
_SHUT, _COASTS = 0.045, 0.005  # m or rad: what is left of the way it goes by itself


class _Articulated(Routine):
    """What opening and closing have in common."""

    opening: bool
    usual = False  # see `plan_approach`
    slowest_mps = 0.0  # of the tip, at a face and at the end of the way

    @property
    def handle(self) -> Handle:
        """The handle that the goal names."""
        return handle(self.episode.layout, self.goal.marker)

    @property
    def joint(self) -> float:
        """How far it is open now."""
        return float(self.world.joints[0, self.handle.index])

    @property
    def holds(self) -> bool:
        """Whether the cup holds this handle."""
        return bool(self.world.held_joint[0] == self.handle.index)

    def run(self) -> Run:
        """See `Routine.run`."""
        if not self.done():
            yield from self.work()
        yield from self.leave()
        if not self.done():
            return False
        if not self._finished():
            yield from self.to_rest()
        return self._finished()

    def choose(self, world: WorldState) -> tuple[np.ndarray, bool]:
        """See `Routine.choose`; calls stop as soon as everything is as it should be."""
        self.world = world
        return self.stopped() if self._finished() else super().choose(world)

    def _finished(self) -> bool:
        free = bool(self.world.held_joint[0] < 0)
        return free and self.done() and self.at_rest()

    @abc.abstractmethod
    def done(self) -> bool:
        """Whether the joint is where it should be."""

    @abc.abstractmethod
    def work(self) -> Steps:
        """Moves the joint."""

    @abc.abstractmethod
    def leave(self) -> Steps:
        """Goes away from what has been moved without moving it."""

    def come_to(self) -> Steps:
        """Drives before the face, raises the arm, and drives on until the cup is on it."""
        self.grip = -1.0
        approach = yield from self.find(
            lambda scene: plan_approach(scene, self.handle, self.joint, self.opening, self.usual)
        )
        if approach is None:
            self.note("no_handle")
            raise Blocked("handle")
        if approach.legs is not None:
            self.note("moved_base")
            self.phase = "drive"
            yield from self.travel(approach.legs, self._ready(approach, approach.first))
        self.phase = "ready"
        yield from self.follow(self._ready(approach, self.world.base[0]))
        self.phase, self.grip = "contact", 1.0 if self.opening else -1.0
        x, y, yaw = approach.stance
        left = point_to_base(self.world.base[0], np.array([x, y, 0.0]))
        if not self.opening and not self.handle.slides and left[0] > 2 * abs(left[1]):
            # The hand comes between a door and a wall from the free edge.
            yield from self.drive([Leg(x, y, yaw, 1)] * 2)
        yield from self._touch(tip_in_world(approach.stance, cup_pose(approach.posture)[0]))

    def _ready(self, approach: Approach, base: np.ndarray) -> np.ndarray:
        """The arm's way (k, 7) to the posture of an approach, from a base pose (3,)."""
        path = self.path_to(approach.posture, self.look().checker(base))
        if path is None:
            self.note("no_path_to_ready")
            return approach.posture[None]
        return path

    def _gap(self) -> float:
        """How far (m) the tool is off the face, a few millimetres less rather than more."""
        cup, normal = np.asarray(self.world.ee_pos[0]), self.handle.normal(self.joint)
        facing = -quat_matrix(self.world.ee_quat[0])[:, 0] @ normal
        off = float((cup - self.handle.point(self.joint)) @ normal)
        if self.opening:
            return off - float(off_face(facing, opening=True))
        # A hand that leans over a drawer touches with the cup alone.
        base, arm = np.asarray(self.world.base[0]), np.asarray(self.world.arm[0])
        spheres = hand_to_front(self.handle, self.joint, base, arm) - _ROUND_M
        return max(spheres, off - float(off_face(facing, opening=False)) + PUSH_GAP_M)

    def _touch(self, contact: np.ndarray) -> Steps:
        """Brings the cup's tip to a point (3,) on the face, by driving, until that is felt.

        Raises:
            Blocked: the face comes no nearer, or has gone.
        """
        tip = point_to_base(self.world.base[0], self.world.ee_pos[0])
        into, before = -self.handle.normal(self.joint), self.joint
        last = max(_TOUCH_MPS if self.opening else _PUSH_MPS, self.slowest_mps)
        speed, best, stuck = self._speed(into), math.inf, 0
        while not self.holds and (self.opening or self.joint > before - _MOVED):
            gap, left = self._gap(), contact - np.asarray(self.world.ee_pos[0])
            if gap < -_PRESS_M or self.world.force[0] > _CONTACT_N:
                return
            stuck = 0 if gap < best - _NEARER_M else stuck + 1
            best = min(best, gap)
            if stuck > _STUCK_STEPS or abs(self.joint - before) > _GONE:
                raise Blocked("face")
            far = max(gap, 0.0)
            braked = min(_FAST_MPS, math.sqrt(2 * _BRAKE_MPS2 * far), _NEARING * far) + last
            speed = min(speed + _SPEED_UP_MPS2 / CONTROL_HZ, braked)
            wanted = speed * into + _AIM_GAIN * (left - (left @ into) * into)
            self.world = yield self.move_tip(tip, to_base(self.world.base[0], wanted))

    def _speed(self, direction: np.ndarray) -> float:
        """How fast (m/s) the base moves the cup in a direction (3,) now, at least 0."""
        velocity, base = np.asarray(self.world.base_velocity[0]), self.world.base[0]
        x, y = np.asarray(self.world.ee_pos[0])[:2] - base[:2]
        moved = velocity[:2] + velocity[2] * np.array([-y, x])
        return max(0.0, float(moved @ direction[:2]))

    def drag(self, goal: float) -> Steps:
        """Drives so that the cup, held where it is in the base frame, takes the joint along."""
        self.phase = "drag"
        where, tip = self.handle, point_to_base(self.world.base[0], self.world.ee_pos[0])
        sign = 1.0 if goal > self.joint else -1.0
        motion = sign * where.motion(self.joint, np.asarray(self.world.ee_pos[0]))
        speed, best, stuck = self._speed(motion / np.linalg.norm(motion)), self.joint, 0
        while sign * (goal - self.joint) > 0.0:
            base, cup = self.world.base[0], np.asarray(self.world.ee_pos[0])
            motion = sign * where.motion(self.joint, cup)
            radius = float(np.linalg.norm(motion))
            left = sign * (goal - self.joint) * radius
            slowed = math.sqrt(2 * _SLOW_DOWN_MPS2 * left) + max(_LAST_MPS, self.slowest_mps)
            speed = min(speed + _SPEED_UP_MPS2 / CONTROL_HZ, _SPEED_MPS, slowed)
            wanted = to_base(base, speed * motion / radius)
            wanted += _PULL_GAIN * (point_to_base(base, cup) - tip)
            self.world = yield self.move_tip(tip, wanted)
            stuck = 0 if sign * (self.joint - best) > _STUCK else stuck + 1
            best = max(best, self.joint) if sign > 0 else min(best, self.joint)
            if stuck > _STUCK_STEPS or (self.opening and not self.holds):
                self.note("stuck" if self.holds or not self.opening else "lost_hold")
                return

    def lift_off(self) -> Steps:
        """Takes the cup straight off the face, by driving."""
        tip = point_to_base(self.world.base[0], self.world.ee_pos[0])
        normal, best, stuck = self.handle.normal(self.joint), self._gap(), 0
        while self._gap() < _LIFT_OFF_M and stuck < _STUCK_STEPS:
            wanted = to_base(self.world.base[0], _LIFT_OFF_MPS * normal)
            self.world = yield self.move_tip(tip, wanted)
            stuck = 0 if self._gap() > best + _STUCK else stuck + 1
            best = max(best, self._gap())

    @property
    def at_face(self) -> bool:
        """Whether the tool is so near to the face that it would move it."""
        away = np.asarray(self.world.ee_pos[0]) - self.handle.point(self.joint)
        return self._gap() < _LIFT_OFF_M and float(np.linalg.norm(away)) < _BESIDE_M


class ScriptedOpen(_Articulated):
    """Sucks on to the face under the marker, and drives back."""

    opening = True

    def done(self) -> bool:
        """Open far enough to reach what is inside."""
        return self.joint >= open_goal(self.handle)[-1] - 0.015

    def work(self) -> Steps:
        """See `_Articulated.work`."""
        if not self.holds:
            yield from self.come_to()
        if not self.holds:
            self.note("missed")
            return
        self.grip = 1.0
        scene, (goal, _, enough) = self.look(), open_goal(self.handle)
        drag = foresee(scene, self.handle, scene.base, scene.arm, self.joint, goal)
        # Where it was taken hold of a little beside the plan, the last of the way is only felt.
        yield from self.drag(max(drag.joint, enough))
        before = math.inf
        while self.holds and abs(self.joint - before) > _CALM:
            before = self.joint
            yield from self.wait(1)

    def leave(self) -> Steps:
        """Releases the handle and backs off, so that the folding arm does not move it again."""
        if not self.holds and not self.at_face:
            return
        self.phase, self.grip = "retreat", -1.0
        yield from self.wait(1 if self.holds else 0)
        yield from self.lift_off()
        end, path = self._way_back()
        if end is None:
            return
        legs = [Leg(end[0], end[1], self.world.base[0, 2], -1)] * 2
        if path is None:
            yield from self.drive(legs)
        else:
            yield from self.drive_and_follow(legs, path)

    def _way_back(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Where to back off to (3,), and the arm's way (k, 7) to rest there; as far as there is."""
        scene = self.look()
        footprint = scene.footprint(scene.arm, without=self.handle.index)
        ends = [ahead(scene.base, -by) for by in _RETREATS_M]
        ends = [end for end in ends if footprint.margin(*end) > _TOUCHING_M]
        for end in ends:
            path = self._fold_path(end)
            if path is not None:
                return end, path
        return (ends[0] if ends else None), None

    def _fold_path(self, base: np.ndarray) -> np.ndarray | None:
        """The arm's way (k, 7) to rest at a base pose, if there is one."""
        there = dataclasses.replace(self.look(), base=base)
        checker = there.checker(base)
        for posture in resting(there, checker, only_drivable=True):
            path = self.path_to(posture, checker)
            if path is not None:
                return path
        return None


class ScriptedClose(_Articulated):
    """Leans on the face under the marker, and drives on."""

    opening = False
    together_m = 0.03  # an open door that is brushed swings away, out of reach

    def done(self) -> bool:
        """As good as shut."""
        return self.joint <= _SHUT

    def work(self) -> Steps:
        """See `_Articulated.work`."""
        yield from self.come_to()
        scene = self.look()
        drag = foresee(scene, self.handle, scene.base, scene.arm, self.joint, 0.0)
        yield from self.drag(min(drag.joint + _COASTS, _SHUT - _MOVED))

    def leave(self) -> Steps:
        """Takes the hand off: without suction it does not open what it has shut."""
        if self.at_face:
            self.phase = "retreat"
            yield from self.lift_off()


class UsualClose(ScriptedClose):
    """Closes in the same way wherever that can be done: for demonstrations.

    It never creeps: a speed of a hundredth of the fastest is none for a network.
    """

    usual, slowest_mps = True, 0.2

    def label(self, world: WorldState) -> tuple[np.ndarray, bool]:
        """See `skills.core.interface.Demonstrator.label`."""
        return self.choose(world)
