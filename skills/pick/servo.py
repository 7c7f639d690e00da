"""Pick by servoing: the teacher that policies are cloned from."""

import math

import numpy as np

from skills.core.interface import SkillGoal
from skills.scripted import servoing
from skills.scripted.grasps import _touch_targets
from skills.scripted.scene import Scene, look
from skills.scripted.servoing import Way, drive, towards, wrap
from skills.scripted.stances import Stances
from tpsrl.world import action as act
from tpsrl.world.collision import REST, distances_to
from tpsrl.world.episode import Episode
from tpsrl.world.kinematics import cup_pose, inverse
from tpsrl.world.reach import CUP_AXIS, NO_OFFSET
from tpsrl.world.state import WorldState

_MOVED_M = 0.02
_NEAR_M = 0.45  # of the stance, from where on the arm moves
_SAFE_M = 0.015  # that the arm keeps from everything on its way
_TUBE_RAD = 0.07
_RAISED_RAD = 0.2
_PRESS_M = 0.02
_RIM_M, _CLEAR_M, _TOUCHING_M = 0.026, 0.036, 0.002
_LIFT_M = 0.08
_BACK_M = 0.3


class ServoPick:
    """What to do about an object is read off the state; see `skills.scripted.servoing`."""

    depth_size: tuple[int, int] | None = None

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.Teacher.begin`."""
        self._episode, self._goal = episode, goal
        self._place: np.ndarray | None = None
        self._held_at: np.ndarray | None = None
        self._plans = 0

    def diagnosis(self) -> dict[str, int]:
        """How often ways were looked for."""
        return {"plans": self._plans}

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        """See `skills.core.interface.SkillPolicy.act`."""
        return self.label(world)[0]

    def label(self, world: WorldState) -> tuple[np.ndarray, bool]:
        """See `skills.core.interface.Teacher.label`."""
        scene = look(self._episode, world)
        action = np.zeros(act.SIZE)
        action[act.GRIP], action[act.STOP] = -1.0, -1.0
        if world.held[0] == self._goal.object:
            action[act.GRIP] = 1.0
            self._bring_back(scene, world, action)
            return action, True
        self._held_at = None
        self._look_for_ways(scene)
        if not self._ways:
            return action, False
        self._reach(scene, world, action)
        return action, True

    # -- reaching ------------------------------------------------------------------------------

    def _look_for_ways(self, scene: Scene) -> None:
        """All simple ways to the object where it is now, unless they are known."""
        place = scene.position[self._goal.object]
        if self._place is not None and float(np.linalg.norm(place - self._place)) < _MOVED_M:
            return
        self._place = place.copy()
        self._plans += 1
        poses = servoing.stances(scene, place)
        n = len(poses)
        zero = np.zeros(n)
        around = Stances(zero, poses, zero, poses, np.zeros(n, bool))
        self._targets = _touch_targets(scene, self._goal.object, around)
        self._ways: list[Way] = list(servoing.ways(scene, self._targets, poses, self._goal.object))
        self._stances = np.array([way.stance for way in self._ways]).reshape(-1, 3)
        self._steps = np.array([way.steps for way in self._ways])
        self._before = np.array([way.before for way in self._ways]).reshape(-1, 7)

    def _choose(self, scene: Scene) -> Way:
        """The way that takes the fewest steps from here."""
        offset = self._stances[:, :2] - scene.base[:2]
        far = np.linalg.norm(offset, axis=1)
        off = np.abs(_wrapped(np.arctan2(offset[:, 1], offset[:, 0]) - scene.base[2]))
        turn = np.abs(_wrapped(self._stances[:, 2] - scene.base[2]))
        driving = far / 0.05 + np.where(far > 0.15, np.minimum(off, np.pi - off + 0.5), 0.0) / 0.06
        driving += turn / 0.06
        return self._ways[int(np.argmin(driving + self._steps))]

    def _reach(self, scene: Scene, world: WorldState, action: np.ndarray) -> None:
        way = self._choose(scene)
        assert self._place is not None
        far = float(np.hypot(*(way.stance[:2] - scene.base[:2])))
        raised = float(np.abs(scene.arm - way.before).max()) < _RAISED_RAD
        end = way.stance if raised or far < servoing.ARRIVED_M else way.first
        action[act.BASE] = drive(scene.base, end, self._place)
        facing = math.atan2(self._place[1] - scene.base[1], self._place[0] - scene.base[0])
        turned = abs(wrap(facing - scene.base[2]))
        checker = scene.checker(scene.base, touching=self._goal.object)
        if far > servoing.ARRIVED_M * 1.3 or turned > 2 * servoing.ARRIVED_RAD:
            near = float(np.hypot(*(way.first[:2] - scene.base[:2]))) < _NEAR_M or raised
            wanted = way.before if near or far < _NEAR_M else REST
            step = towards(scene.arm, wanted)
            after = scene.arm + 3 * act.ARM_DELTA_RAD * step
            if checker.clearance(after, _SAFE_M) >= min(
                _SAFE_M, checker.clearance(scene.arm, _SAFE_M)
            ):
                action[act.ARM] = step
            return
        there, before = servoing.solve(self._targets, way.target, scene.base, way.before)
        if there is None or before is None:
            there, before = way.there, way.before
        tip, turn = cup_pose(there)
        axis = turn[:, 0].copy()
        ok, beyond = inverse(
            there, tip + _PRESS_M * axis, CUP_AXIS, axis, there, NO_OFFSET, 40, 0.3
        )
        if not ok:
            beyond = there
        if _from_line(scene.arm, before, beyond) < _TUBE_RAD:
            action[act.ARM] = towards(scene.arm, beyond)
        else:
            action[act.ARM] = towards(scene.arm, before)
        own, other = self._gaps(scene, world)
        alone = own < _RIM_M and other > _CLEAR_M
        if alone or own < _TOUCHING_M:
            action[act.GRIP] = 1.0

    def _gaps(self, scene: Scene, world: WorldState) -> tuple[float, float]:
        bodies = scene.objects
        cup = np.asarray(world.ee_pos[0], dtype=np.float64)
        gaps = distances_to(bodies.kind, bodies.centre, bodies.rotation, bodies.half, cup)
        own = float(gaps[self._goal.object])
        gaps[self._goal.object] = np.inf
        return own, float(gaps.min())

    # -- bringing back -------------------------------------------------------------------------

    def _bring_back(self, scene: Scene, world: WorldState, action: np.ndarray) -> None:
        if self._held_at is None:
            self._held_at = np.array(world.ee_pos[0])
        self._place = None
        risen = float(world.ee_pos[0, 2] - self._held_at[2])
        away = float(np.hypot(*(np.asarray(world.ee_pos[0, :2]) - self._held_at[:2])))
        checker = scene.checker(scene.base)
        if risen < _LIFT_M and away < 0.12:
            tip, turn = cup_pose(scene.arm)
            ok, lifted = inverse(
                scene.arm, tip + np.array([-0.01, 0.0, 0.05]), CUP_AXIS, turn[:, 0].copy(),
                scene.arm, NO_OFFSET, 60, 0.3,
            )  # fmt: skip
            if ok:
                action[act.ARM] = towards(scene.arm, lifted)
                return
        step = towards(scene.arm, REST)
        after = scene.arm + 3 * act.ARM_DELTA_RAD * step
        now, then = checker.clearance(scene.arm, _SAFE_M), checker.clearance(after, _SAFE_M)
        if then >= min(_SAFE_M, now):
            action[act.ARM] = step
        if away < _BACK_M or not np.any(action[act.ARM]):
            action[act.BASE.start] = -0.3


def _wrapped(angle: np.ndarray) -> np.ndarray:
    return (angle + np.pi) % (2 * np.pi) - np.pi


def _from_line(q: np.ndarray, start: np.ndarray, end: np.ndarray) -> float:
    """How far (rad, the farthest joint) a posture is from a line in joint space."""
    along = end - start
    t = float(np.clip((q - start) @ along / max(float(along @ along), 1e-9), 0.0, 1.0))
    return float(np.abs(q - start - t * along).max())
