"""Episodes and moves that the engine's tests share."""

import numpy as np

from tpsrl.sim.mujoco_sim import MujocoSimulator
from tpsrl.world import action as act
from tpsrl.world.collision import REST
from tpsrl.world.episode import Episode, ObjectPlacement
from tpsrl.world.floor import CELL_M, floor_map, main_floor
from tpsrl.world.kinematics import inverse
from tpsrl.world.objects import object_kind
from tpsrl.world.reach import CUP_AXIS, NO_OFFSET, point_to_base, seeds_towards

LAYOUT_A = "replica_cad/v3_sc3_staging_00"
LAYOUT_B = "replica_cad/v3_sc1_staging_12"
IDLE = np.zeros(act.SIZE)
IDLE[act.GRIP] = -1.0
UP = np.array([0.0, 0.0, 1.0])


def roomiest(layout: str) -> tuple[float, float]:
    """The point of the main floor that is farthest from everything."""
    floor = floor_map(layout)
    distance = np.where(main_floor(layout), floor.distance, -1.0)
    iy, ix = np.unravel_index(np.argmax(distance), distance.shape)
    return (
        floor.origin[0] + (float(ix) + 0.5) * CELL_M,
        floor.origin[1] + (float(iy) + 0.5) * CELL_M,
    )


def on_floor(name: str, x: float, y: float, lift: float = 0.001) -> ObjectPlacement:
    """An object that stands upright on the floor."""
    z = object_kind(name).half[2] + lift
    return ObjectPlacement(name, (x, y, z), (1.0, 0.0, 0.0, 0.0), "floor")


def episode(
    layout: str,
    base: tuple[float, float, float],
    *objects: ObjectPlacement,
    articulation: dict[str, float] | None = None,
) -> Episode:
    """An episode without targets."""
    return Episode("test", "tidy_house", "val", layout, base, objects, (), dict(articulation or {}))


def box_in_front(layout: str = LAYOUT_A, ahead: float = 0.7) -> Episode:
    """The robot in free space with a cracker box on the floor in front of it."""
    x, y = roomiest(layout)
    return episode(layout, (x, y, 0.0), on_floor("003_cracker_box", x + ahead, y))


def repeat(simulator: MujocoSimulator, action: np.ndarray, steps: int, env: int = 0) -> None:
    """The same action for a while."""
    for _ in range(steps):
        simulator.step([env], action[None])


def posture_above(base: np.ndarray, point: np.ndarray, near: np.ndarray = REST) -> np.ndarray:
    """Joint positions (7,) with the cup at a world point, looking down; those nearest to `near`."""
    goal = point_to_base(base, point)
    found = []
    for seed in (near, *seeds_towards(goal)):
        ok, posture = inverse(seed, goal, CUP_AXIS, -UP, near, NO_OFFSET, 200)
        if ok:
            found.append(posture)
    assert found, f"the cup cannot come to {point}"
    return min(found, key=lambda posture: float(np.abs(posture - near).max()))


def move_arm(
    simulator: MujocoSimulator, posture: np.ndarray, grip: float = -1.0, env: int = 0
) -> None:
    """Brings the arm to a posture by actions."""
    target = simulator.homes[env].arm_target
    while np.abs(posture - target).max() > 1e-9:
        action = IDLE.copy()
        action[act.ARM] = np.clip((posture - target) / act.ARM_DELTA_RAD, -1, 1)
        action[act.GRIP] = grip
        before = target.copy()
        simulator.step([env], action[None])
        target = simulator.homes[env].arm_target
        if np.array_equal(before, target):
            return  # something blocks the way


def pick_up(simulator: MujocoSimulator, env: int = 0) -> None:
    """Grasps object 0 from above and lifts it by 10 cm."""
    state = simulator.state([env])
    name = simulator.homes[env].episode.objects[0].name
    top = state.object_pos[0, 0] + object_kind(name).half[2] * UP
    base = state.base[0]
    over = posture_above(base, top + 0.08 * UP)
    move_arm(simulator, over, env=env)
    move_arm(simulator, posture_above(base, top, over), grip=1.0, env=env)
    held = IDLE.copy()
    held[act.GRIP] = 1.0
    repeat(simulator, held, 5, env)
    assert simulator.state([env]).held[0] == 0
    move_arm(simulator, posture_above(base, top + 0.1 * UP), grip=1.0, env=env)
