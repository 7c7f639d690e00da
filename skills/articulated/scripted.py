"""Open and close: take hold of a face, or lean on it, drive, let go, back to rest."""

import abc
import dataclasses
import math

import numpy as np

from skills.articulated.drag import base_velocity, foresee, tip_in_world
from skills.articulated.leverage import RETREAT_M, open_goal, plan_approach
from skills.core.geometry import rest_distance
from skills.scripted.navigation import Leg
from skills.scripted.routine import Blocked, Routine, Steps, rest_postures
from skills.scripted.search import ahead
from tpsrl.world import action as act
from tpsrl.world.action import BASE_ANGULAR_RPS, BASE_LINEAR_MPS, CONTROL_HZ
from tpsrl.world.handles import Handle, handle
from tpsrl.world.kinematics import cup_pose
from tpsrl.world.reach import point_to_base, to_base
from tpsrl.world.state import WorldState

_TRIES = 3
_PRESS_M = 0.06  # how far past the planned contact the base may drive before it gives up
_CREEP_MPS = 0.4
_SPEED_MPS, _ACCELERATION = 1.0, 3.0
_CONTACT_N = 300.0  # the face is reached, whatever the plan said
_AIM_GAIN = 4.0  # 1/s, from the tip's error beside its way to its velocity
_PULL_GAIN = 4.0  # 1/s, from the arm's deflection to the base's velocity
_STUCK_STEPS = 20
_AT_REST_M = 0.14
_CALM_STEPS = 3  # a door that still swings would run into the cup
_LIFT_OFF_STEPS, _LIFT_OFF_MPS = 4, 0.8


class _Articulated(Routine):
    """What opening and closing have in common."""

    opening: bool

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

    def run(self) -> Steps:
        """See `Routine.run`."""
        for _ in range(_TRIES):
            try:
                if not self.done():
                    yield from self.work()
                yield from self.leave()
                if self.done():
                    yield from self.to_rest()
                    return
            except Blocked as blocked:
                self.note(f"blocked_{blocked}")
                self.grip = -1.0
                yield from self.wait(2)
                self.resync()
        yield from self.to_rest()

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        """See `Routine.act`; calls stop as soon as everything is as it should be."""
        action = super().act(world, depth)
        free = world.held_joint[0] < 0
        if free and self.done() and rest_distance(world.base, world.ee_pos)[0] < _AT_REST_M:
            action[act.STOP] = 1.0
        return action

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
        scene = self.look()
        approach = plan_approach(scene, self.handle, self.joint, self.opening)
        if approach is None:
            self.note("no_handle")
            raise Blocked("handle")
        if approach.legs is not None:
            self.note("moved_base")
            self.phase = "drive"
            path = self._ready_path(approach.posture, approach.first)
            yield from self.drive_and_follow(approach.legs, path)
        self.phase = "ready"
        yield from self.follow(self._ready_path(approach.posture))
        self.grip, self.phase = (1.0 if self.opening else -1.0), "contact"
        if not self.opening:
            x, y, yaw = approach.stance
            yield from self.drive([Leg(x, y, yaw, 1)] * 2)
        yield from self._creep(tip_in_world(approach.stance, cup_pose(approach.posture)[0]))
        self.resync()

    def _creep(self, contact: np.ndarray) -> Steps:
        """Brings the cup's tip to a point (3,) on the face and a little into it, by driving."""
        tip = point_to_base(self.world.base[0], self.world.ee_pos[0])
        into, before = -self.handle.normal(self.joint), self.joint
        while not self.holds and (self.opening or self.joint > before - 0.01):
            base, cup = self.world.base[0], np.asarray(self.world.ee_pos[0])
            left = contact - cup
            ahead = float(left @ into)
            if ahead < -_PRESS_M or self.world.force[0] > _CONTACT_N:
                return
            speed = _CREEP_MPS if ahead < 0.03 else 2 * _CREEP_MPS
            wanted = to_base(base, speed * into + _AIM_GAIN * (left - ahead * into))
            self.world = yield self._move_tip(tip, wanted)

    def _move_tip(self, tip: np.ndarray, velocity: np.ndarray) -> np.ndarray:
        """The action by which the base gives the tip (3,) a velocity (3,), m/s; base frame."""
        linear, angular = base_velocity(tip, velocity)
        action = self.still()
        action[act.BASE] = linear / BASE_LINEAR_MPS, angular / BASE_ANGULAR_RPS
        return np.clip(action, -1.0, 1.0)

    def drag(self, goal: float) -> Steps:
        """Drives so that the cup, held where it is in the base frame, takes the joint along."""
        self.phase = "drag"
        where, tip = self.handle, point_to_base(self.world.base[0], self.world.ee_pos[0])
        sign = 1.0 if goal > self.joint else -1.0
        speed, best, stuck = 0.0, self.joint, 0
        while sign * (goal - self.joint) > 0.0:
            base, cup = self.world.base[0], np.asarray(self.world.ee_pos[0])
            motion = sign * where.motion(self.joint, cup)
            radius = float(np.linalg.norm(motion))
            left = sign * (goal - self.joint) * radius
            speed = min(speed + _ACCELERATION / CONTROL_HZ, _SPEED_MPS, math.sqrt(4.0 * left) + 0.1)
            wanted = to_base(base, speed * motion / radius)
            wanted += _PULL_GAIN * (point_to_base(base, cup) - tip)
            self.world = yield self._move_tip(tip, wanted)
            stuck = 0 if sign * (self.joint - best) > 0.002 else stuck + 1
            best = max(best, self.joint) if sign > 0 else min(best, self.joint)
            if stuck > _STUCK_STEPS or (self.opening and not self.holds):
                self.note("stuck" if self.holds else "lost_hold")
                return
        yield from self.wait(_CALM_STEPS if self.opening else 0)


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
        if self.holds:
            scene = self.look()
            goal = open_goal(self.handle)[0]
            drag = foresee(scene, self.handle, scene.base, scene.arm, self.joint, goal)
            yield from self.drag(max(drag.joint, self.joint + 0.1))
        else:
            self.note("missed")

    def leave(self) -> Steps:
        """Releases the handle and backs off, so that the folding arm does not move it again."""
        self.phase = "retreat"
        self.grip = -1.0
        yield from self.wait(1)
        self.resync()
        yield from self._lift_off()
        base = self.world.base[0]
        end = ahead(base, -RETREAT_M)
        footprint = self.look().footprint(self.world.arm[0], without=self.handle.index)
        if footprint.margin(*end) < -0.02:
            return
        legs = [Leg(end[0], end[1], base[2], -1)] * 2
        path = self._fold_path(end)
        if path is None:
            yield from self.drive(legs)
        else:
            yield from self.drive_and_follow(legs, path)

    def _fold_path(self, base: np.ndarray) -> np.ndarray | None:
        """The arm's way (k, 7) to rest at a base pose, if there is one."""
        there = dataclasses.replace(self.look(), base=base)
        checker = there.checker(base)
        for posture in rest_postures(there, checker, only_drivable=True):
            path = self.path_to(posture, checker)
            if path is not None:
                return path
        return None

    def _lift_off(self) -> Steps:
        """Takes the cup straight off the face, by driving."""
        tip = point_to_base(self.world.base[0], self.world.ee_pos[0])
        for _ in range(_LIFT_OFF_STEPS):
            away = to_base(self.world.base[0], self.handle.normal(self.joint))
            self.world = yield self._move_tip(tip, _LIFT_OFF_MPS * away)


class ScriptedClose(_Articulated):
    """Leans on the face under the marker, and drives on."""

    opening = False

    def done(self) -> bool:
        """As good as shut."""
        return self.joint <= 0.03

    def work(self) -> Steps:
        """See `_Articulated.work`."""
        yield from self.come_to()
        yield from self.drag(0.0)

    def leave(self) -> Steps:
        """Nothing: an arm without suction does not open what it has shut."""
        self.resync()
        yield from self.wait(0)
