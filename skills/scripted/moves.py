"""Moves of scripted skills: driving along legs, moving the arm along a path, both at once."""

from collections.abc import Generator
from typing import Any

import numpy as np

from skills.core.geometry import rest_distance
from skills.core.interface import SkillGoal
from tpsrl.motion.arm.rrt import MARGINS_M, widest_path
from tpsrl.motion.base.driving import Leg, plan_drive
from tpsrl.motion.base.tip_tracking import Lead, base_velocity
from tpsrl.motion.body.timing import MARGIN_M, plan_together
from tpsrl.motion.scene import Scene, look
from tpsrl.motion.tracking import ArmTracker, BaseTracker, OffPlan
from tpsrl.world import action as act
from tpsrl.world.collision import ArmChecker
from tpsrl.world.episode import Episode
from tpsrl.world.footprint import Footprint
from tpsrl.world.reach import point_to_base, to_base
from tpsrl.world.state import WorldState

Steps = Generator[np.ndarray, WorldState, None]

_STILL_RAD = 0.002  # per joint and step
_SETTLE_STEPS = 15
_FARTHER_M = 0.5  # increase of the distance, beyond which another stance may be better


class Moves:
    """Base class of scripted skills: a robot with a goal, and generators of actions."""

    episode: Episode
    goal: SkillGoal
    world: WorldState
    grip: float  # entry of the next action
    phase: str
    together_m = MARGIN_M  # minimum clearance while base and arm move at once
    _diagnosis: dict[str, Any]
    _phases: dict[str, int]  # control steps by phase

    def note(self, problem: str) -> None:
        """Counts an event for the diagnosis."""
        self._diagnosis[problem] = self._diagnosis.get(problem, 0) + 1

    def look(self) -> Scene:
        """Returns the scene of the current state."""
        return look(self.episode, self.world)

    def still(self) -> np.ndarray:
        """Returns the action that moves nothing and keeps the grip."""
        action = np.zeros(act.SIZE)
        action[act.GRIP] = self.grip
        action[act.STOP] = -1.0
        return action

    @property
    def rest_m(self) -> float:
        """Distance of the cup from its resting point (m)."""
        return float(rest_distance(self.world.base, self.world.ee_pos)[0])

    def wait(self, steps: int) -> Steps:
        """Stands still for `steps` control steps."""
        for _ in range(steps):
            self.world = yield self.still()

    def drive(self, legs: list[Leg]) -> Steps:
        """Drives along legs.

        Raises:
            Blocked: the base makes no progress.
            OffPlan: the base has left the legs.
        """
        yield from self._move(BaseTracker(legs, self.world.base[0], self._footprint), None)

    def move_tip(self, tip: np.ndarray, velocity: np.ndarray) -> np.ndarray:
        """Returns the action by which the base moves the tip (3,) with a velocity (3,).

        Args:
            tip: (3,) m, base frame
            velocity: (3,) m/s, base frame
        """
        linear, angular = base_velocity(tip, velocity)
        action = self.still()
        action[act.BASE] = linear / act.BASE_LINEAR_MPS, angular / act.BASE_ANGULAR_RPS
        return np.clip(action, -1.0, 1.0)

    def lead(self, way: np.ndarray) -> Steps:
        """Drives so that the cup's tip follows its positions at base poses (k, 3), see `ways_back`.

        Raises:
            Blocked: the tip makes no progress.
            OffPlan: the tip has left its path.
        """
        tip = point_to_base(self.world.base[0], self.world.ee_pos[0])
        leader = Lead(way, tip)
        while True:
            velocity = leader.velocity(self.world)
            if velocity is None:
                return
            self.world = yield self.move_tip(tip, to_base(self.world.base[0], velocity))

    def follow(self, path: np.ndarray, until_held: bool = False, through: bool = False) -> Steps:
        """Moves the arm along way-points (k, 7), with the slowest joint at full speed.

        Args:
            path: (k, 7) way-points
            until_held: end as soon as an object or handle is held
            through: pass the last way-point without settling, for a move that follows

        Raises:
            Blocked: the arm makes no progress.
            OffPlan: the arm has left the path.
        """
        yield from self._move(None, self._arm(path, through), until_held=until_held)

    def drive_and_follow(self, legs: list[Leg], path: np.ndarray) -> Steps:
        """Drives along legs and moves the arm along way-points (k, 7), at once if that is free.

        Otherwise one of them is delayed; in the worst case the arm moves after the drive.

        Raises:
            Blocked: base or arm make no progress.
            OffPlan: base or arm have left their path.
        """
        scene = self.look()
        way = plan_together(scene, legs, np.vstack([scene.arm[None], path]), margin=self.together_m)
        if way is None:
            yield from self.drive(legs)
            yield from self.follow(path)
        else:
            base = BaseTracker(legs, scene.base, self._footprint)
            yield from self._move(base, self._arm(way.path), delay=way.delay)

    def travel(self, legs: list[Leg], path: np.ndarray | None = None) -> Steps:
        """Runs `drive_and_follow`, or `drive` without a path; replans the drive when off it.

        Replanning the drive is much cheaper than a new plan, and keeps the destination.

        Raises:
            Blocked: base or arm make no progress.
            OffPlan: there is no new path to the destination, or the base is now much farther away.
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
        """Returns the distance (m) of the base from a pose (3,)."""
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
        """Yields actions for base and arm until both have arrived.

        With a positive `delay` the arm starts after that many steps of the base; with a negative
        one the base starts after that many steps of the arm.
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
        """Waits until the arm is still, for at most half a second."""
        for _ in range(_SETTLE_STEPS):
            before = np.array(self.world.arm[0])
            self.world = yield self.still()
            if float(np.abs(self.world.arm[0] - before).max()) < _STILL_RAD:
                return

    def path_to(self, posture: np.ndarray, checker: ArmChecker) -> np.ndarray | None:
        """Returns a free path (k, 7) from the current posture, or None; see `widest_path`."""
        found = widest_path(checker, np.array(self.world.arm[0]), posture)
        if found is None:
            return None
        path, margin = found
        if margin < MARGINS_M[0]:
            self.note("tight_path" if margin >= 0 else "touching_path")
        return path[1:]
