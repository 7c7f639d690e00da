"""Episodes and motions shared by the engine tests."""

import math

import numpy as np

from tpsrl.sim.mujoco_sim import MujocoSimulator
from tpsrl.world import action as act
from tpsrl.world.collision import REST
from tpsrl.world.episode import Episode, ObjectPlacement
from tpsrl.world.floor import CELL_M, floor_map, main_floor
from tpsrl.world.handles import handle
from tpsrl.world.kinematics import inverse
from tpsrl.world.layouts import placed_receptacles, resolve
from tpsrl.world.objects import object_kind
from tpsrl.world.reach import CUP_AXIS, NO_OFFSET, point_to_base, seeds_towards, to_base
from tpsrl.world.state import JOINTS

LAYOUT_A = "replica_cad/v3_sc3_staging_00"
LAYOUT_B = "replica_cad/v3_sc1_staging_12"
FRIDGE, DRAWER = "fridge_push_point", "cab_push_point_5"
IDLE = np.zeros(act.SIZE)
IDLE[act.GRIP] = -1.0
HOLD = np.zeros(act.SIZE)
HOLD[act.GRIP] = 1.0
UP = np.array([0.0, 0.0, 1.0])


def roomiest(layout: str) -> tuple[float, float]:
    """Returns the point of the main floor farthest from all obstacles."""
    floor = floor_map(layout)
    distance = np.where(main_floor(layout), floor.distance, -1.0)
    iy, ix = np.unravel_index(np.argmax(distance), distance.shape)
    return (
        floor.origin[0] + (float(ix) + 0.5) * CELL_M,
        floor.origin[1] + (float(iy) + 0.5) * CELL_M,
    )


def on_floor(name: str, x: float, y: float, lift: float = 0.001) -> ObjectPlacement:
    """Returns an object standing upright on the floor."""
    z = object_kind(name).half[2] + lift
    return ObjectPlacement(name, (x, y, z), (1.0, 0.0, 0.0, 0.0), "")


def episode(
    layout: str,
    base: tuple[float, float, float],
    *objects: ObjectPlacement,
    articulation: dict[str, float] | None = None,
) -> Episode:
    """Returns an episode without targets."""
    return Episode("test", "tidy_house", "val", layout, base, objects, (), dict(articulation or {}))


def box_in_front(layout: str = LAYOUT_A, ahead: float = 0.7) -> Episode:
    """Returns an episode with a cracker box on the floor in front of the robot, in free space."""
    x, y = roomiest(layout)
    return episode(layout, (x, y, 0.0), on_floor("003_cracker_box", x + ahead, y))


def repeat(simulator: MujocoSimulator, action: np.ndarray, steps: int, env: int = 0) -> None:
    """Repeats an action for a number of control steps."""
    for _ in range(steps):
        simulator.step([env], action[None])


def driving(linear: float, action: np.ndarray = IDLE) -> np.ndarray:
    """Returns an action that drives straight ahead, at a fraction of the maximum speed."""
    driven = action.copy()
    driven[act.BASE] = linear, 0.0
    return driven


def posture_above(base: np.ndarray, point: np.ndarray, near: np.ndarray = REST) -> np.ndarray:
    """Returns joint positions (7,) with the cup at a world point, facing down.

    Of all solutions found it is the closest to `near`.
    """
    return posture_towards(base, point, -UP, near)


def posture_towards(
    base: np.ndarray, point: np.ndarray, axis: np.ndarray, near: np.ndarray = REST
) -> np.ndarray:
    """Returns the same for a cup that faces along `axis` (3,), in the world frame."""
    goal, axis = point_to_base(base, point), to_base(base, axis)
    found = []
    for seed in (near, *seeds_towards(goal)):
        ok, posture = inverse(seed, goal, CUP_AXIS, axis, near, NO_OFFSET, 200)
        if ok:
            found.append(posture)
    assert found, f"the cup cannot come to {point}"
    return min(found, key=lambda posture: float(np.abs(posture - near).max()))


def move_arm(
    simulator: MujocoSimulator, posture: np.ndarray, grip: float = -1.0, env: int = 0
) -> None:
    """Moves the arm to a posture by actions, until it is reached or blocked."""
    target = simulator.homes[env].arm_target
    while np.abs(posture - target).max() > 1e-9:
        action = IDLE.copy()
        action[act.ARM] = np.clip((posture - target) / act.ARM_DELTA_RAD, -1, 1)
        action[act.GRIP] = grip
        before = target.copy()
        simulator.step([env], action[None])
        target = simulator.homes[env].arm_target
        if np.array_equal(before, target):
            return  # an obstacle blocks the arm


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


def holding(simulator: MujocoSimulator) -> None:
    """Resets home 0 and picks up the cracker box."""
    simulator.reset([0], [box_in_front()])
    pick_up(simulator)


def arm_on_object(simulator: MujocoSimulator) -> None:
    """Resets home 0 and presses the cup on the box on the floor."""
    simulator.reset([0], [box_in_front()])
    state = simulator.state([0])
    top = state.object_pos[0, 0] + object_kind("003_cracker_box").half[2] * UP
    posture = REST
    for height in (0.08, 0.05, 0.02, -0.01, -0.02):
        posture = posture_above(state.base[0], top + height * UP, posture)
        move_arm(simulator, posture)
    assert simulator.state([0]).force[0] > 20


def before_handle(
    marker: str,
    away: float = 0.85,
    *objects: ObjectPlacement,
    joint: float = 0.0,
    across: float = 0.0,
) -> Episode:
    """Returns an episode with the robot in front of a handle of LAYOUT_A, facing it squarely.

    Args:
        marker: of the handle
        away: distance (m) from it
        *objects: in the home
        joint: position (rad, m) of the door or drawer
        across: offset (m) of the robot to the side of the handle
    """
    grip = handle(LAYOUT_A, marker)
    normal = grip.normal(joint)
    x, y = (grip.point(joint, across) + away * normal)[:2]
    base = (float(x), float(y), math.atan2(-normal[1], -normal[0]))
    return episode(LAYOUT_A, base, *objects, articulation={marker: joint})


def reach_face(
    simulator: MujocoSimulator,
    marker: str,
    gap: float,
    grip: float = -1.0,
    across: float = 0.0,
    env: int = 0,
) -> None:
    """Moves the cup straight towards a door or drawer, to a distance of `gap` (m), by arm alone."""
    where, world = handle(LAYOUT_A, marker), simulator.state([env])
    joint, base = float(world.joints[0, where.index]), world.base[0]
    point, normal = where.point(joint, across), where.normal(joint)
    before = posture_towards(base, point + 0.06 * normal, -normal)
    move_arm(simulator, before, env=env)
    move_arm(simulator, posture_towards(base, point + gap * normal, -normal, before), grip, env)
    repeat(simulator, HOLD if grip > 0 else IDLE, 5, env)


def take_drawer(simulator: MujocoSimulator, *objects: ObjectPlacement) -> None:
    """Resets home 0 and grasps the handle of the closed drawer."""
    simulator.reset([0], [before_handle(DRAWER, 0.85, *objects)])
    reach_face(simulator, DRAWER, gap=-0.01, grip=1.0)
    assert simulator.state([0]).held_joint[0] == JOINTS.index(DRAWER)


def pull_drawer(simulator: MujocoSimulator) -> None:
    """Drives backwards with the drawer in home 0, and stops."""
    repeat(simulator, driving(-0.2, HOLD), 20)
    repeat(simulator, HOLD, 15)


def in_drawer(name: str, joint: float = 0.0) -> ObjectPlacement:
    """Returns an object standing in the middle of the drawer `DRAWER` in LAYOUT_A."""
    grip = handle(LAYOUT_A, DRAWER)
    place = next(p for p in placed_receptacles(*resolve(LAYOUT_A)) if p.marker == DRAWER)
    x, y = (place.pos + grip.point(joint) - grip.point(0.0))[:2]
    z = place.surface + object_kind(name).half[2] + 0.001
    return ObjectPlacement(name, (float(x), float(y), z), (1.0, 0.0, 0.0, 0.0), place.name)
