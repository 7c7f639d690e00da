"""Scripted Navigate: drive to a base pose from which the next skill can act."""

import functools
import math

import numpy as np

from skills.scripted.routine import Routine, Run
from tpsrl.motion.arm.rest_poses import postures_about
from tpsrl.motion.arm.rrt import MARGINS_M
from tpsrl.motion.base.driving import Leg, plan_drive
from tpsrl.motion.doors.door_grasps import open_goal, plan_approach
from tpsrl.motion.scene import Scene
from tpsrl.motion.suction.grasps import DRIVE_WEIGHT, destination, plan_pick, plan_place
from tpsrl.world.geometry import wrap_angle
from tpsrl.world.handles import handle
from tpsrl.world.reach import stances

_FACING_RAD = 0.22  # below HAB's 15 degrees to the goal
_TURN_RAD, _MARGIN_M = 0.05, 0.015


class ScriptedNavigate(Routine):
    """Drives to the stance from which the next manipulation is quickest."""

    def run(self) -> Run:
        """See `Routine.run`."""
        legs = yield from self.find(self._legs, moves_arm=False)
        if legs is None:
            self.note("no_path")
            return False
        if legs:
            yield from self.travel(legs)
        return True

    def _legs(self, scene: Scene) -> list | None:
        """Returns legs to the best stance, [] for the current one, None if none can be reached."""
        if self.goal.marker:
            return self._legs_to_handle(scene)
        goal = np.array(self.goal.position, dtype=np.float64)
        # The arm is reset before the next skill, so any resting posture may be assumed.
        checker = scene.checker(scene.base)
        arms = functools.partial(postures_about, scene, checker, MARGINS_M[1])
        if scene.held is not None:
            reach = plan_place(scene, goal, DRIVE_WEIGHT, arms=arms)
        elif self.goal.object >= 0:
            index = self.goal.object
            then = destination(self.episode, index)
            reach = plan_pick(scene, index, then, DRIVE_WEIGHT, arms=arms)
        else:
            reach = None
        if reach is not None:
            return reach.legs or _legs_to_face(scene, goal)
        self.note("no_reach")
        return self._legs_near(scene, goal)

    def _legs_to_handle(self, scene: Scene) -> list | None:
        """Returns legs to a stance from which to open a closed joint, or to close an open one."""
        where = handle(scene.layout, self.goal.marker)
        joint = float(self.world.joints[0, where.index])
        approach = plan_approach(scene, where, joint, opening=joint < open_goal(where)[-1] / 2)
        if approach is not None:
            return approach.legs or []
        self.note("no_reach")
        return self._legs_near(scene, where.point(joint))

    def _legs_near(self, scene: Scene, goal: np.ndarray) -> list | None:
        """Returns legs to the first reachable stance that faces the goal (3,), or None."""
        footprint = scene.footprint(scene.arm)
        standoffs = (0.7, 0.85, 1.0, 1.2, 1.4)
        for stance in stances(scene.layout, goal, standoffs, joints=scene.joints):
            if footprint.margin(*stance) > 0.02:
                legs = plan_drive(footprint, scene.base, stance)
                if legs is not None:
                    return legs
        return None


def _legs_to_face(scene: Scene, goal: np.ndarray) -> list[Leg]:
    """Returns a turn on the spot towards a goal (3,), [] if not needed or not free."""
    x, y, yaw = scene.base
    off = wrap_angle(math.atan2(goal[1] - y, goal[0] - x) - yaw)
    if abs(off) < _FACING_RAD:
        return []
    footprint = scene.footprint(scene.arm)
    turns = yaw + np.linspace(0.0, off, 1 + math.ceil(abs(off) / _TURN_RAD))
    least = min(footprint.margin(x, y, yaw), _MARGIN_M)
    if any(footprint.margin(x, y, turn) < least for turn in turns[1:]):
        return []
    return [Leg(x, y, float(turns[-1]), 1)]
