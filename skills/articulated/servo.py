"""Opening and closing by servoing: the demonstrators that policies are cloned from.

The arm takes one standard posture, with which the base drives up to the handle. Contact, drag and
retreat are then functions of the poses of cup, joint and base. The scripted skill chooses among
many plans; here there is only one.
"""

import functools
import math

import numpy as np
from scipy import optimize

from skills.core.interface import SkillGoal
from skills.scripted.servoing import Mover, towards, wrap
from tpsrl.motion.base.stances import ahead
from tpsrl.motion.base.tip_tracking import tip_in_world
from tpsrl.motion.doors import door_grasps
from tpsrl.motion.doors.door_grasps import RETREAT_M, open_goal
from tpsrl.motion.doors.holds import off_face
from tpsrl.motion.scene import Scene, look
from tpsrl.world import action as act
from tpsrl.world.collision import REST
from tpsrl.world.episode import Episode
from tpsrl.world.fetch import REST_EE
from tpsrl.world.geometry import quat_matrix
from tpsrl.world.handles import handle
from tpsrl.world.kinematics import cup_pose
from tpsrl.world.reach import point_to_base, to_base
from tpsrl.world.state import WorldState

_BEFORE_M = 0.15  # from the face, where the arm takes its posture and the cup is aimed
_POSED_RAD = 0.15
_AIM_GAIN, _BRAKE, _FASTEST, _SLOWEST = 4.0, 2.0, 0.8, 0.4
_ASKEW_RAD, _TURN_GAIN = 0.35, 4.0
# Beyond _ASKEW_RAD or _ASIDE_M it first drives to a pose with the face straight ahead.
_ASIDE_M, _THERE_M = 0.12, 0.1
_SWEEP, _BLOCKED_RAD, _SAFE_M = (0.0, 0.33, 0.67), math.pi, 0.02
_FUNNEL = 3.0  # distance from the face per metre of lateral error
_GRIP_M = 0.12  # from the face, within which suction is on
_PULL, _LAST = 1.0, 0.25  # m/s of the handle: maximum, and at the end
_SLOW_DOWN, _PULL_GAIN = 2.0, 3.0
_OFF_M, _OFF_MPS = 0.06, 0.8
_NEAR_M = 0.6  # from the handle: the hand counts as at the face
_AT_REST_M = 0.125  # success requires 0.15
_SHUT = 0.03
_BEHIND_M, _AT_FACE_M, _LINED_UP_M = 0.06, 0.1, 0.15
_CLEAR_M, _EDGE_M, _AROUND_MPS = 0.04, 0.2, 0.8
_PUSH_MPS = 0.8
_FOLD_RAD, _FOLDED_M = 0.62, 0.09
_SHORT, _SPARE_RAD = 0.015, 0.25  # m or rad: tolerated shortfall; excess of a held door


class ServoOpen(Mover):
    """Demonstrator of opening; `SkillGoal.marker` is the handle."""

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.Demonstrator.begin`."""
        self.episode, self.goal = episode, goal
        self._handle = handle(episode.layout, goal.marker)
        self._plans = 0
        self._known: tuple[float, np.ndarray, np.ndarray] | None = None
        self._rest = folded(tuple(self._hold(float(world.joints[0, self._handle.index]))[0]))

    def label(self, world: WorldState) -> tuple[np.ndarray, bool]:
        """See `skills.core.interface.Demonstrator.label`."""
        scene = look(self.episode, world)
        action = np.zeros(act.SIZE)
        action[act.GRIP], action[act.STOP] = -1.0, -1.0
        joint = float(world.joints[0, self._handle.index])
        holds = bool(world.held_joint[0] == self._handle.index)
        if self.is_done(joint, holds):
            self._leave(scene, world, joint, holds, action)
            return action, True
        if holds:
            action[act.GRIP] = 1.0
            action[act.BASE] = self._drag(scene, world, joint)
            return action, True
        self._come(scene, world, joint, action)
        return action, True

    def is_done(self, joint: float, holds: bool) -> bool:
        """Returns whether the joint is open far enough; a released door may swing back a little."""
        spare = _SPARE_RAD if holds and not self._handle.slides else -_SHORT
        return joint >= open_goal(self._handle)[-1] + spare

    # -- approaching ---------------------------------------------------------------------------

    def _hold(self, joint: float) -> tuple[np.ndarray, np.ndarray]:
        """Returns posture (7,) and stance (3,) for `joint`, updated after a motion of 0.03."""
        if self._known is None or abs(self._known[0] - joint) >= 0.03:
            self._plans += 1
            self._known = (joint, *door_grasps.usual_hold(self._handle, joint, self.episode.layout))
        return self._known[1:]

    def _come(self, scene: Scene, world: WorldState, joint: float, action: np.ndarray) -> None:
        """Drives to the face while the arm takes its posture, then moves the cup to the handle.

        Small lateral errors of the cup are corrected by turning, without moving the base sideways.
        """
        posture, stance = self._hold(joint)
        posed = float(np.abs(scene.arm - posture).max()) < _POSED_RAD
        normal = self._handle.normal(joint)
        cup = np.asarray(world.ee_pos[0], np.float64)
        away = cup - self._handle.point(joint)
        off = float(away @ normal) - self._apart(world, normal)
        beside = away - (away @ normal) * normal
        beside[2] = 0.0
        aside = float(np.linalg.norm(beside))
        if not posed or abs(wrap(stance[2] - scene.base[2])) > _ASKEW_RAD or aside > _ASIDE_M:
            before = ahead(stance, -_BEFORE_M - self._apart(world, normal))
            forward, turn = drive_to(scene, posture, before)
        else:
            left = max(off, 0.0) - min(_FUNNEL * max(aside - 0.01, 0.0), _BEFORE_M)
            speed = _SLOWEST + float(np.clip(_braked(left), -_FASTEST, _FASTEST))
            forward, turn = self._lead(scene, cup, -speed * normal - _AIM_GAIN * beside)
        arm = towards(scene.arm, posture)
        if posed and off < 1.6 * _BEFORE_M and aside < 0.1:
            action[act.ARM] = arm
        else:
            action[act.ARM], forward, turn = self.freest(
                scene,
                [
                    (arm, forward, turn),
                    (0 * arm, forward, turn),
                    (arm, -0.3, 0.0),
                    (arm, 0.0, 0.0),
                    (0 * arm, -0.3, 0.0),
                ],
            )
        action[act.BASE] = forward, turn
        if posed and off < _GRIP_M:
            action[act.GRIP] = 1.0

    def _apart(self, world: WorldState, normal: np.ndarray) -> float:
        """Returns the distance (m) of the cup's tip from the face at contact."""
        facing = -quat_matrix(world.ee_quat[0])[:, 0] @ normal
        return float(off_face(np.asarray(facing), opening=True))

    def _lead(self, scene: Scene, cup: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Returns the base's action (2,) for a velocity `wanted` (3,), m/s, of the tip at `cup`."""
        x, y, _ = point_to_base(scene.base, cup)
        u, w, _ = to_base(scene.base, wanted)
        turn = w / max(x, 0.2)
        speeds = np.array([(u + turn * y) / act.BASE_LINEAR_MPS, turn / act.BASE_ANGULAR_RPS])
        clipped: np.ndarray = speeds / max(1.0, float(np.abs(speeds).max()))
        return clipped

    # -- moving the joint ----------------------------------------------------------------------

    def _drag(self, scene: Scene, world: WorldState, joint: float) -> np.ndarray:
        """Returns the base's action (2,) that moves the held joint."""
        cup = np.asarray(world.ee_pos[0], np.float64)
        motion = self._handle.motion(joint, cup)
        radius = float(np.linalg.norm(motion))
        left = max(open_goal(self._handle)[0] - joint, 0.0) * radius
        speed = min(_PULL, math.sqrt(2.0 * _SLOW_DOWN * left) + _LAST)
        wanted = speed * motion / radius
        tip = cup_pose(self._posture(scene))[0]
        lag = point_to_base(scene.base, cup) - tip
        turn = np.array([math.cos(scene.base[2]), math.sin(scene.base[2])])
        back = np.array(
            [turn[0] * lag[0] - turn[1] * lag[1], turn[1] * lag[0] + turn[0] * lag[1], 0.0]
        )
        return self._lead(scene, cup, wanted + _PULL_GAIN * back)

    def _posture(self, scene: Scene) -> np.ndarray:
        """Returns the posture (7,) that the arm keeps."""
        if self._known is not None:
            return self._known[1]
        return scene.arm

    # -- leaving -------------------------------------------------------------------------------

    def _leave(
        self, scene: Scene, world: WorldState, joint: float, holds: bool, action: np.ndarray
    ) -> None:
        """Releases, lifts the cup off the face, backs off while the arm folds, calls stop."""
        cup = np.asarray(world.ee_pos[0], np.float64)
        away, normal = cup - self._handle.point(joint), self._handle.normal(joint)
        self._known = None
        rest = tip_in_world(scene.base, np.array(REST_EE))
        if float(np.linalg.norm(world.ee_pos[0] - rest)) < _AT_REST_M:
            action[act.STOP] = 0.0 if holds else 1.0
            if not holds:
                return
        off = float(away @ normal)
        near = float(np.linalg.norm(away)) < _NEAR_M
        if holds or (near and abs(off) < _OFF_M):
            action[act.BASE] = 0.0 if holds else self._lead(scene, cup, _OFF_MPS * normal)
            return
        arm, still = towards(scene.arm, self._rest), np.zeros(7)
        back = -0.5 if near and off < RETREAT_M else 0.0
        action[act.ARM], forward, turn = self.freest(
            scene, [(arm, back, 0.0), (arm, 0.0, 0.0), (still, -0.3, 0.0), (still, 0.0, 0.3)]
        )
        action[act.BASE] = forward, turn


class ServoClose(ServoOpen):
    """Demonstrator of closing a door by pushing on its face; `SkillGoal.marker` is the handle."""

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.Demonstrator.begin`."""
        self.episode, self.goal = episode, goal
        self._handle = handle(episode.layout, goal.marker)
        self._plans = 1
        joint = float(world.joints[0, self._handle.index])
        self._push = door_grasps.usual_push(self._handle, joint)
        self._rest = folded(tuple(self._push))

    def is_done(self, joint: float, holds: bool) -> bool:
        """Returns whether the joint counts as shut."""
        return joint <= _SHUT

    def _come(self, scene: Scene, world: WorldState, joint: float, action: np.ndarray) -> None:
        """Moves the hand around the free edge of the door to its face, and pushes."""
        posture = self._push
        posed = float(np.abs(scene.arm - posture).max()) < _POSED_RAD
        point, normal = self._handle.point(joint), self._handle.normal(joint)
        cup = np.asarray(world.ee_pos[0], np.float64)
        tip = cup if posed else tip_in_world(scene.base, cup_pose(posture)[0])
        away = tip - point
        off = float(away @ normal)
        beside = away - off * normal
        beside[2] = 0.0
        outwards = self._outwards(joint)
        past = float(beside @ outwards)
        touches = posed and -_BEHIND_M < off < _AT_FACE_M and abs(past) < _LINED_UP_M
        if touches:
            wanted = -_PUSH_MPS * normal - _AIM_GAIN * beside
        elif off < _CLEAR_M:
            # The hand is behind the door: move out past its edge, then around it.
            out = float(np.clip(_AIM_GAIN * (_EDGE_M - past), -0.3, 1.0))
            around = 1.0 if past > _EDGE_M - 0.05 else float(np.clip(-0.06 - off, -1.0, 0.0))
            wanted = _AROUND_MPS * (out * outwards + around * normal)
        else:
            left = off - min(_FUNNEL * max(abs(past) - 0.04, 0.0), _BEFORE_M) + _BEHIND_M
            if not posed:
                left = off - _BEFORE_M
            speed = float(np.clip(_AIM_GAIN * left, -_FASTEST, _FASTEST))
            wanted = -speed * normal - _AIM_GAIN * beside
        arm = towards(scene.arm, posture)
        forward, turn = self._lead(scene, tip, _at_most(wanted, 1.2))
        if touches or (posed and _CLEAR_M <= off < _AT_FACE_M and abs(past) < 2.0 * _LINED_UP_M):
            action[act.ARM], action[act.BASE] = arm, (forward, turn)
            return
        still = np.zeros(7)
        moves = [(arm, forward, turn), (still, forward, turn), (arm, 0.0, 0.0), (arm, -0.2, 0.0)]
        moves += [(still, -0.2, 0.0), (still, 0.0, turn)]
        action[act.ARM], forward, turn = self.freest(scene, moves)
        action[act.BASE] = forward, turn

    def _outwards(self, joint: float) -> np.ndarray:
        """Returns the direction (3,) along the face from the hinge to the handle."""
        motion = self._handle.motion(joint, self._handle.point(joint))
        along = np.cross(motion, self._handle.rotation @ np.array(self._handle.link.axis))
        found: np.ndarray = along / np.linalg.norm(along)
        return found


def _braked(left: float) -> float:
    """Returns the speed (m/s) that allows braking within `left` metres, with its sign."""
    return math.copysign(math.sqrt(2.0 * _BRAKE * abs(left)), left)


def _at_most(wanted: np.ndarray, speed: float) -> np.ndarray:
    """Returns a velocity (3,) limited to `speed`."""
    limited: np.ndarray = wanted / max(1.0, float(np.linalg.norm(wanted)) / speed)
    return limited


def drive_to(scene: Scene, posture: np.ndarray, goal: np.ndarray) -> tuple[float, float]:
    """Returns the base's action towards a pose (3,): turn, drive forwards or backwards, turn again.

    The direction is the one that needs less turning, preferring turns at `goal` that are free of
    collisions with the arm in `posture` (7,).

    Returns:
        Linear and angular command in [-1, 1].
    """
    base = scene.base
    x, y, _ = point_to_base(base, np.array([goal[0], goal[1], 0.0]))
    left, forward, turned = math.hypot(x, y), 0.0, wrap(goal[2] - base[2])
    if left > _THERE_M:
        final = turned
        ways = [(math.atan2(sign * y, sign * x), sign) for sign in (1.0, -1.0)]

        def cost(way: tuple[float, float]) -> float:
            after = wrap(final - way[0])
            heading = base[2] + way[0]
            swept = [np.array([*goal[:2], heading + share * after]) for share in _SWEEP]
            free = all(scene.checker(pose).clearance(posture, _SAFE_M) >= _SAFE_M for pose in swept)
            return abs(way[0]) + abs(after) + (0.0 if free else _BLOCKED_RAD)

        turned, sign = min(ways, key=cost)
        speed = min(_FASTEST, _braked(left))
        forward = sign * speed * max(math.cos(turned), 0.0) ** 4 / act.BASE_LINEAR_MPS
    turn = _TURN_GAIN * turned / act.BASE_ANGULAR_RPS
    return forward, float(np.clip(turn, -1.0, 1.0))


@functools.lru_cache(maxsize=16)
def folded(hold: tuple[float, ...]) -> np.ndarray:
    """Returns the posture (7,) in which to end from `hold` (7,): rest, or a nearer one.

    Success requires the end effector at its resting point, not the resting posture. If rest is more
    than `_FOLD_RAD` away in a joint, the result is the posture nearest to rest that is at most
    `_FOLD_RAD` away in every joint and has the end effector within `_FOLDED_M` of its resting
    point. Without such a posture the result is rest.
    """
    start = np.array(hold)
    if float(np.abs(start - REST).max()) <= _FOLD_RAD:
        return REST
    point = np.array(REST_EE)
    found = optimize.minimize(
        lambda q: float(((q - REST) ** 2).sum()),
        start + np.clip(REST - start, -_FOLD_RAD, _FOLD_RAD),
        bounds=[(q - _FOLD_RAD, q + _FOLD_RAD) for q in hold],
        constraints={
            "type": "ineq",
            "fun": lambda q: _FOLDED_M - float(np.linalg.norm(cup_pose(q)[0] - point)),
        },
        method="SLSQP",
    )
    return np.asarray(found.x) if found.success else REST
