"""A simulator of a home without physics, and policies that succeed in it."""

from collections.abc import Callable, Sequence

import numpy as np

from skills.core.interface import SkillGoal
from tpsrl.render.cameras import Sphere
from tpsrl.sim.base import Capabilities, Snapshot
from tpsrl.world import action as layout
from tpsrl.world.episode import Episode, ObjectPlacement, Target
from tpsrl.world.fetch import REST_EE
from tpsrl.world.state import JOINTS, WorldState

LAYOUT = "replica_cad/v3_sc3_staging_07"
REACH_STEP_M = 0.05
GRASP_M = 0.05


def make_episode(num_objects: int = 3, num_targets: int = 2, **changes: object) -> Episode:
    """Returns an episode with objects along x = 0, 1, 2, ... at y = 2 and goals at y = -2.

    The first objects are the targets.
    """
    objects = tuple(
        ObjectPlacement("003_cracker_box", (float(i), 2.0, 0.8), (1.0, 0.0, 0.0, 0.0), "table_1")
        for i in range(num_objects)
    )
    targets = tuple(Target(i, (float(i), -2.0, 0.8), "table_2") for i in range(num_targets))
    fields: dict[str, object] = {
        "id": "test/0",
        "scenario": "tidy_house",
        "split": "val",
        "layout": LAYOUT,
        "robot_start": (0.0, 0.0, 0.0),
        "objects": objects,
        "targets": targets,
    }
    return Episode(**{**fields, **changes})  # type: ignore[arg-type]


class KinematicHome:
    """One kinematic home: the base rolls, the cup moves by arm actions 0 to 2 in the base frame.

    Objects hover in place unless the cup holds them. While the cup holds a handle, its joint opens
    by the distance that the cup is moved.

    Args:
        faults: called with the home in the control step of the given number
        handles: positions (m) of handles, by marker
    """

    num_envs = 1
    capabilities = Capabilities(exact_snapshots=True, colour=False, device="cpu")

    def __init__(
        self,
        faults: dict[int, Callable[["KinematicHome"], None]] | None = None,
        handles: dict[str, Sequence[float]] | None = None,
    ) -> None:
        self.faults, handles = faults or {}, handles or {}
        self.markers = np.array([handles.get(name, (np.inf,) * 3) for name in JOINTS])
        self.actions: list[np.ndarray] = []

    def reset(self, env_ids: Sequence[int], episodes: Sequence[Episode]) -> None:
        self.episode = episodes[0]
        self.base = np.array(self.episode.robot_start)
        self.cup = np.array(REST_EE)
        self.objects = np.array([o.pos for o in self.episode.objects], dtype=float)
        self.held, self.held_joint = -1, -1
        self.force, self.force_total = 0.0, 0.0
        self.violation, self.count = False, 0
        self.joints = np.array([self.episode.articulation.get(name, 0.0) for name in JOINTS])
        self.actions.clear()

    def ee_pos(self) -> np.ndarray:
        cos, sin = np.cos(self.base[2]), np.sin(self.base[2])
        x, y, z = self.cup
        return np.array([self.base[0] + cos * x - sin * y, self.base[1] + sin * x + cos * y, z])

    def step(self, env_ids: Sequence[int], actions: np.ndarray) -> None:
        action = actions[0]
        self.actions.append(action.copy())
        self.violation, self.force = False, 0.0
        linear, angular = action[layout.BASE] / layout.CONTROL_HZ
        self.base[2] += layout.BASE_ANGULAR_RPS * angular
        heading = np.array([np.cos(self.base[2]), np.sin(self.base[2])])
        self.base[:2] += layout.BASE_LINEAR_MPS * linear * heading
        self.cup += REACH_STEP_M * action[:3]
        if action[layout.GRIP] < 0:
            self.held = self.held_joint = -1
        elif self.held_joint >= 0:
            self.joints[self.held_joint] += REACH_STEP_M * np.linalg.norm(action[:3])
        elif self.held < 0:
            away = np.linalg.norm(self.objects - self.ee_pos(), axis=1)
            self.held = int(np.argmin(away)) if away.min() < GRASP_M else -1
            handle = np.linalg.norm(self.markers - self.ee_pos(), axis=1)
            if self.held < 0 and handle.min() < GRASP_M:
                self.held_joint = int(np.argmin(handle))
        self.count += 1
        if self.count in self.faults:
            self.faults[self.count](self)
        if self.held >= 0:
            self.objects[self.held] = self.ee_pos()
        self.force_total += self.force

    def drop(self) -> None:
        """Breaks the hold; the object falls to the floor."""
        self.objects[self.held, 2] = 0.1
        self.held, self.violation = -1, True

    def state(self, env_ids: Sequence[int]) -> WorldState:
        return WorldState(
            base=self.base[None].copy(),
            base_velocity=np.zeros((1, 3)),
            arm=np.zeros((1, 7)),
            ee_pos=self.ee_pos()[None],
            ee_quat=np.array([[1.0, 0.0, 0.0, 0.0]]),
            object_pos=self.objects[None].copy(),
            object_quat=np.tile([1.0, 0.0, 0.0, 0.0], (1, len(self.objects), 1)),
            held=np.array([self.held]),
            held_joint=np.array([self.held_joint]),
            joints=self.joints[None].copy(),
            marker_pos=np.where(np.isinf(self.markers), 0.0, self.markers)[None],
            force=np.array([self.force]),
            force_total=np.array([self.force_total]),
            violation=np.array([self.violation]),
            step=np.array([self.count]),
        )

    def depth(self, env_ids: Sequence[int], height: int = 64, width: int = 64) -> np.ndarray:
        return np.full((1, height, width), 0.5, dtype=np.float32)

    def snapshot(self, env_id: int) -> Snapshot:
        arrays = {
            "base": self.base.copy(),
            "cup": self.cup.copy(),
            "objects": self.objects.copy(),
            "held": np.array(self.held),
        }
        return Snapshot("kinematic", self.episode, arrays)

    def restore(self, env_id: int, snapshot: Snapshot) -> None:
        self.reset([env_id], [snapshot.episode])
        self.base = snapshot.arrays["base"].copy()
        self.cup = snapshot.arrays["cup"].copy()
        self.objects = snapshot.arrays["objects"].copy()
        self.held = int(snapshot.arrays["held"])

    def render(
        self,
        env_id: int,
        camera: str = "third_person",
        height: int = 360,
        width: int = 480,
        markers: Sequence[Sphere] = (),
    ) -> np.ndarray:
        raise NotImplementedError

    def close(self) -> None:
        pass


class PicturedHome(KinematicHome):
    """Kinematic home with grey images."""

    def render(self, env_id: int, *args: object, **named: object) -> np.ndarray:
        return np.full((90, 120, 3), 128, dtype=np.uint8)


class _Policy:
    """Base of the policies: stores its goal, does nothing."""

    depth_size: tuple[int, int] | None = None

    def __init__(self) -> None:
        self.begun = 0

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        self.goal = goal
        self.begun += 1
        self.done = False

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        return np.zeros(layout.SIZE)

    def diagnosis(self) -> dict[str, object]:
        return {}


class Idle(_Policy):
    """Never acts."""


class Quit(_Policy):
    """Calls stop at once."""

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        action = np.zeros(layout.SIZE)
        action[layout.STOP] = 1.0
        return action

    def diagnosis(self) -> dict[str, object]:
        return {"gave_up": True}


class Drive(_Policy):
    """Turns to the goal, drives to 0.6 m from it, stops. Its grip is always open."""

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        assert self.goal.position is not None
        base = world.base[0]
        delta = np.array(self.goal.position[:2]) - base[:2]
        turn = np.arctan2(delta[1], delta[0]) - base[2]
        turn = np.arctan2(np.sin(turn), np.cos(turn))
        ahead = np.linalg.norm(delta) - 0.6
        action = -np.ones(layout.SIZE)
        action[layout.BASE] = [0.0, np.clip(turn * 12.0, -1.0, 1.0)]
        if abs(turn) < 0.05:
            action[8] = np.clip(ahead * 12.0, -1.0, 1.0)
        action[layout.STOP] = 1.0 if abs(turn) < 0.05 and ahead < 0.05 else -1.0
        return action


class _Reach(_Policy):
    """Moves the cup to a point, operates the grip there, and returns to rest."""

    def target(self, world: WorldState) -> np.ndarray:
        raise NotImplementedError

    def grip(self) -> float:
        raise NotImplementedError

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        point = world_to_base(world.base, self.target(world)[None])[0]
        cup = world_to_base(world.base, world.ee_pos)[0]
        if np.linalg.norm(point - cup) < 0.02:
            self.done = True
        delta = (np.array(REST_EE) if self.done else point) - cup
        action = np.zeros(layout.SIZE)
        action[:3] = np.clip(delta / REACH_STEP_M, -1.0, 1.0)
        action[layout.GRIP] = self.grip()
        action[layout.STOP] = -1.0
        return action


class Grab(_Reach):
    """Picks `SkillGoal.object`; in runs listed in `wrong` reaches for another object."""

    def __init__(self, wrong: dict[int, int] | None = None) -> None:
        super().__init__()
        self.wrong = wrong or {}

    def target(self, world: WorldState) -> np.ndarray:
        index = self.wrong.get(self.begun, self.goal.object)
        return np.asarray(world.object_pos[0, index])

    def grip(self) -> float:
        return 1.0


class Put(_Reach):
    """Places at `SkillGoal.position`, off by `offset_m` along x."""

    def __init__(self, offset_m: float = 0.0) -> None:
        super().__init__()
        self.offset_m = offset_m

    def target(self, world: WorldState) -> np.ndarray:
        assert self.goal.position is not None
        x, y, z = self.goal.position
        return np.array([x + self.offset_m, y, z])

    def grip(self) -> float:
        return -1.0 if self.done else 1.0


class Pull(_Policy):
    """Grasps a handle, pulls until the joint is open by `amount`, returns to rest, stops."""

    def __init__(self, amount: float = 1.3, let_go: bool = True) -> None:
        super().__init__()
        self.amount, self.let_go = amount, let_go

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        joint = JOINTS.index(self.goal.marker)
        cup = world_to_base(world.base, world.ee_pos)[0]
        action = np.zeros(layout.SIZE)
        action[[layout.GRIP, layout.STOP]] = 1.0, -1.0
        if world.joints[0, joint] >= self.amount:
            delta = np.array(REST_EE) - cup
            action[:3] = np.clip(delta / REACH_STEP_M, -1.0, 1.0)
            action[layout.GRIP] = -1.0 if self.let_go else 1.0
            action[layout.STOP] = 1.0 if np.linalg.norm(delta) < 0.15 else -1.0
        elif world.held_joint[0] == joint:
            action[0] = -1.0
        else:
            point = world_to_base(world.base, world.marker_pos[:, joint])[0]
            action[:3] = np.clip((point - cup) / REACH_STEP_M, -1.0, 1.0)
        return action


class Fold(_Policy):
    """Returns the cup to rest, then stops."""

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        delta = np.array(REST_EE) - world_to_base(world.base, world.ee_pos)[0]
        action = np.zeros(layout.SIZE)
        action[:3] = np.clip(delta / REACH_STEP_M, -1.0, 1.0)
        action[layout.STOP] = 1.0 if np.linalg.norm(delta) < 0.15 else -1.0
        return action


def world_to_base(base: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Transforms points (n, 3) from the world to base poses (n, 3); z is unchanged."""
    delta = point[..., :2] - base[..., :2]
    cos, sin = np.cos(base[..., 2]), np.sin(base[..., 2])
    x = cos * delta[..., 0] + sin * delta[..., 1]
    y = -sin * delta[..., 0] + cos * delta[..., 1]
    return np.stack([x, y, point[..., 2]], axis=-1)
