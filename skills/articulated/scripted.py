"""Scripted Open and Close: attach to a face or push it, drive, release, return to rest.

The next step follows from the state of the world, so a skill can be restarted at any time: with the
cup on the handle, with the joint half open, or after the robot was pushed away.
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

# The cup approaches a face quickly, brakes (m/s2), and covers nearly half of the last few
# centimetres in each step, so that it touches without an impact.
_FAST_MPS, _BRAKE_MPS2, _NEARING = 0.8, 4.0, 12.0
_TOUCH_MPS, _PUSH_MPS = 0.03, 0.06
_ROUND_M = 0.008  # by which the rim of the cup projects beyond its sphere
_PRESS_M, _CONTACT_N = 0.03, 300.0  # depth and force at which contact counts as made
_SPEED_MPS, _SPEED_UP_MPS2, _SLOW_DOWN_MPS2 = 1.2, 4.0, 2.5  # of the handle while the joint moves
_LAST_MPS = 0.06
_AIM_GAIN = 4.0  # 1/s, from the tip's lateral error to its velocity
_PULL_GAIN = 4.0  # 1/s, from the arm's deflection to the base's velocity
_STUCK_STEPS, _STUCK, _NEARER_M = 15, 0.002, 0.0005
_GONE = 0.05  # m or rad: beyond this, something else has moved the face
_CALM = 0.003  # m or rad per step: a door that swings faster would hit the released cup
_LIFT_OFF_M, _LIFT_OFF_MPS = 0.06, 0.8
_BESIDE_M = 0.5  # m from the marker, beyond which the hand is not at the face
_RETREATS_M = (RETREAT_M, 0.25, 0.15)
_TOUCHING_M = -0.02
_MOVED = 0.004  # m or rad of motion that confirm contact with a pushed face
_SHUT, _COASTS = 0.045, 0.005  # m or rad: counts as shut; coasting distance after the push


class _Articulated(Routine):
    """Base class of the scripted opening and closing."""

    opening: bool
    usual = False  # see `plan_approach`
    slowest_mps = 0.0  # minimum speed of the tip, at the face and at the end of the motion

    @property
    def handle(self) -> Handle:
        """Handle of the goal."""
        return handle(self.episode.layout, self.goal.marker)

    @property
    def joint(self) -> float:
        """Current position of the joint (m or rad)."""
        return float(self.world.joints[0, self.handle.index])

    @property
    def holds(self) -> bool:
        """Whether the cup holds the handle."""
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
        """See `Routine.choose`; calls stop once joint, grip and arm are in their final state."""
        self.world = world
        return self.stopped() if self._finished() else super().choose(world)

    def _finished(self) -> bool:
        free = bool(self.world.held_joint[0] < 0)
        return free and self.done() and self.at_rest()

    @abc.abstractmethod
    def done(self) -> bool:
        """Returns whether the joint has reached its final position."""

    @abc.abstractmethod
    def work(self) -> Steps:
        """Moves the joint."""

    @abc.abstractmethod
    def leave(self) -> Steps:
        """Moves away from the door or drawer without moving it."""

    def come_to(self) -> Steps:
        """Drives to the face, raises the arm, and drives on until the cup touches the face.

        Raises:
            Blocked: there is no approach, or the face cannot be reached.
        """
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
            # The hand enters the gap between door and wall from the free edge.
            yield from self.drive([Leg(x, y, yaw, 1)] * 2)
        yield from self._touch(tip_in_world(approach.stance, cup_pose(approach.posture)[0]))

    def _ready(self, approach: Approach, base: np.ndarray) -> np.ndarray:
        """Returns the arm's path (k, 7) to the posture of an approach, at a base pose (3,)."""
        path = self.path_to(approach.posture, self.look().checker(base))
        if path is None:
            self.note("no_path_to_ready")
            return approach.posture[None]
        return path

    def _gap(self) -> float:
        """Returns the distance (m) of the tool from the face, a few millimetres too small."""
        cup, normal = np.asarray(self.world.ee_pos[0]), self.handle.normal(self.joint)
        facing = -quat_matrix(self.world.ee_quat[0])[:, 0] @ normal
        off = float((cup - self.handle.point(self.joint)) @ normal)
        if self.opening:
            return off - float(off_face(facing, opening=True))
        # Above a drawer the hand touches with the cup alone.
        base, arm = np.asarray(self.world.base[0]), np.asarray(self.world.arm[0])
        spheres = hand_to_front(self.handle, self.joint, base, arm) - _ROUND_M
        return max(spheres, off - float(off_face(facing, opening=False)) + PUSH_GAP_M)

    def _touch(self, contact: np.ndarray) -> Steps:
        """Drives the cup's tip to a point (3,) on the face until contact.

        Contact is a hold, a motion of the pushed joint, a measured force, or a negative gap.

        Raises:
            Blocked: the distance does not decrease, or the face has moved away.
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
        """Returns the speed (m/s, at least 0) of the cup in a direction (3,), due to the base."""
        velocity, base = np.asarray(self.world.base_velocity[0]), self.world.base[0]
        x, y = np.asarray(self.world.ee_pos[0])[:2] - base[:2]
        moved = velocity[:2] + velocity[2] * np.array([-y, x])
        return max(0.0, float(moved @ direction[:2]))

    def drag(self, goal: float) -> Steps:
        """Drives so that the cup, fixed in the base frame, moves the joint to `goal` (m or rad)."""
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
        """Drives the cup off the face along its normal."""
        tip = point_to_base(self.world.base[0], self.world.ee_pos[0])
        normal, best, stuck = self.handle.normal(self.joint), self._gap(), 0
        while self._gap() < _LIFT_OFF_M and stuck < _STUCK_STEPS:
            wanted = to_base(self.world.base[0], _LIFT_OFF_MPS * normal)
            self.world = yield self.move_tip(tip, wanted)
            stuck = 0 if self._gap() > best + _STUCK else stuck + 1
            best = max(best, self._gap())

    @property
    def at_face(self) -> bool:
        """Whether the tool is near enough to the face to move it."""
        away = np.asarray(self.world.ee_pos[0]) - self.handle.point(self.joint)
        return self._gap() < _LIFT_OFF_M and float(np.linalg.norm(away)) < _BESIDE_M


class ScriptedOpen(_Articulated):
    """Attaches the cup to the face at the marker, and drives back."""

    opening = True

    def done(self) -> bool:
        """Returns whether the joint is open far enough to reach the objects inside."""
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
        # If the contact is slightly off the plan, the forecast is too small: pull until it ends.
        yield from self.drag(max(drag.joint, enough))
        before = math.inf
        while self.holds and abs(self.joint - before) > _CALM:
            before = self.joint
            yield from self.wait(1)

    def leave(self) -> Steps:
        """Releases the handle and backs off, so that the folding arm does not move the joint."""
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
        """Returns the base pose (3,) to back off to, and the arm's path (k, 7) to rest there.

        Either is None if there is none.
        """
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
        """Returns the arm's path (k, 7) to rest at a base pose (3,), or None."""
        there = dataclasses.replace(self.look(), base=base)
        checker = there.checker(base)
        for posture in resting(there, checker, only_drivable=True):
            path = self.path_to(posture, checker)
            if path is not None:
                return path
        return None


class ScriptedClose(_Articulated):
    """Pushes on the face at the marker by driving forward."""

    opening = False
    together_m = 0.03  # an open door that is touched swings out of reach

    def done(self) -> bool:
        """Returns whether the joint counts as shut."""
        return self.joint <= _SHUT

    def work(self) -> Steps:
        """See `_Articulated.work`."""
        yield from self.come_to()
        scene = self.look()
        drag = foresee(scene, self.handle, scene.base, scene.arm, self.joint, 0.0)
        yield from self.drag(min(drag.joint + _COASTS, _SHUT - _MOVED))

    def leave(self) -> Steps:
        """Lifts the hand off the face; without suction this does not open the joint again."""
        if self.at_face:
            self.phase = "retreat"
            yield from self.lift_off()


class UsualClose(ScriptedClose):
    """Demonstrator of closing: uses the same approach wherever possible.

    Speeds have a minimum, because a network cannot learn speeds of 1% of the maximum.
    """

    usual, slowest_mps = True, 0.2

    def label(self, world: WorldState) -> tuple[np.ndarray, bool]:
        """See `skills.core.interface.Demonstrator.label`."""
        return self.choose(world)
