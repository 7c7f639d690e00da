"""The vector that a policy is shown beside depth: named sensors, one after the other.

There are two choices. "habitat" is what habitat-lab's skill gives its policy beside the camera.
"full" is one layout for HAB's seven skills which says enough to learn them without a camera; to
Navigate, which would be blind, it adds the way along the floor and a laser scan.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from skills.core.geometry import array_namespace, columns, constant
from skills.core.task import SkillTask, TaskState, View
from tpsrl.errors import unknown
from tpsrl.world.scan import RAYS
from tpsrl.world.state import WorldState

CHOICES = ("habitat", "full")


@dataclasses.dataclass(frozen=True, slots=True)
class Sensor:
    """So many numbers; `read(task, view, world)` gives (n, size). Metres, radians, seconds."""

    size: int
    read: Callable[[TaskState, View, WorldState], Any]


def _arm(task: TaskState, view: View, world: WorldState) -> Any:
    return world.arm


def _ee(task: TaskState, view: View, world: WorldState) -> Any:
    return view.ee


def _to_rest(task: TaskState, view: View, world: WorldState) -> Any:
    return view.to_rest


def _holding(task: TaskState, view: View, world: WorldState) -> Any:
    return view.holding[:, None]


def _velocity(task: TaskState, view: View, world: WorldState) -> Any:
    return view.velocity


def _reach(task: TaskState, view: View, world: WorldState) -> Any:
    return view.subject - view.ee


def _goal(task: TaskState, view: View, world: WorldState) -> Any:
    return view.goal


def _gap(task: TaskState, view: View, world: WorldState) -> Any:
    return view.gap[:, None]


def _goal_polar(task: TaskState, view: View, world: WorldState) -> Any:
    return columns(view.distance, view.heading)


def _compass(task: TaskState, view: View, world: WorldState) -> Any:
    xp = array_namespace(view.heading)
    return columns(view.distance, xp.cos(view.heading), xp.sin(view.heading))


def _way(task: TaskState, view: View, world: WorldState) -> Any:
    return view.ahead


def _scan(task: TaskState, view: View, world: WorldState) -> Any:
    return view.scan


def _start_from_ee(task: TaskState, view: View, world: WorldState) -> Any:
    return into_frame(world.ee_quat, task.start - world.ee_pos)


def _goal_from_ee(task: TaskState, view: View, world: WorldState) -> Any:
    return into_frame(world.ee_quat, task.position - world.ee_pos)


WAY = "way"  # is asked of a `PathMeter`
SCAN = "scan"  # is asked of a `Scanner`

SENSORS: dict[str, Sensor] = {
    "arm": Sensor(7, _arm),  # joint positions
    "ee": Sensor(3, _ee),  # end effector, base frame
    "to_rest": Sensor(3, _to_rest),  # from the end effector to its resting point, base frame
    "holding": Sensor(1, _holding),  # 1 with an object or a handle in the cup, else 0
    "velocity": Sensor(3, _velocity),  # of the base: forward, left, turn
    "reach": Sensor(3, _reach),  # from the end effector to object, handle or goal, base frame
    "goal": Sensor(3, _goal),  # where to place or go (else the object or handle), base frame
    "gap": Sensor(1, _gap),  # what the door or drawer lacks
    "goal_polar": Sensor(2, _goal_polar),  # distance over the floor, angle (left positive)
    "compass": Sensor(3, _compass),  # distance over the floor, cosine and sine of the angle
    WAY: Sensor(3, _way),  # along the floor: what is left, next corner of the shortest path
    SCAN: Sensor(RAYS, _scan),  # of a laser on the base, all around
    "start_from_ee": Sensor(3, _start_from_ee),  # where the object was, end effector's frame
    "goal_from_ee": Sensor(3, _goal_from_ee),  # where to place it, end effector's frame
}
FULL = ("arm", "ee", "to_rest", "holding", "velocity", "reach", "goal", "gap")


def sensors(skill: SkillTask, choice: str) -> tuple[str, ...]:
    """The names of a skill's sensors in their order.

    Raises:
        UserError: there is no such choice.
    """
    if choice not in CHOICES:
        raise unknown("sensors", choice, CHOICES)
    return (skill.full_sensors or FULL) if choice == "full" else skill.sensors


def shown(skill: SkillTask, choice: str | None, camera: bool) -> tuple[str, ...]:
    """`sensors`, where no choice means habitat's beside a camera, and full without one."""
    return sensors(skill, choice or ("habitat" if camera else "full"))


def layout(names: tuple[str, ...]) -> dict[str, slice]:
    """Where each sensor lies in the vector."""
    found, start = {}, 0
    for name in names:
        found[name] = slice(start, start + SENSORS[name].size)
        start += SENSORS[name].size
    return found


def size(names: tuple[str, ...]) -> int:
    """The length k of the vector."""
    return sum(SENSORS[name].size for name in names)


def observe(names: tuple[str, ...], task: TaskState, view: View, world: WorldState) -> Any:
    """The vectors (n, k) float32."""
    xp = array_namespace(world.base)
    parts = [SENSORS[name].read(task, view, world) for name in names]
    return xp.astype(xp.concat(parts, axis=-1), xp.float32)


def into_frame(quat: Any, vector: Any) -> Any:
    """Vectors (n, 3) of the world in frames turned by quaternions (n, 4), (w, x, y, z)."""
    xp = array_namespace(quat)
    products = quat[:, :, None] * quat[:, None, :]
    turn = xp.reshape(xp.reshape(products, (-1, 16)) @ constant(_TURN, quat), (-1, 3, 3))
    return (vector[:, None, :] @ turn)[:, 0]


def _rotation_table() -> tuple[tuple[float, ...], ...]:
    """(16, 9): makes a rotation matrix of the products of a quaternion's entries."""
    ww, wx, wy, wz, xx, xy, xz, yy, yz, zz = 0, 1, 2, 3, 5, 6, 7, 10, 11, 15
    entries = (
        {ww: 1, xx: 1, yy: -1, zz: -1},
        {xy: 2, wz: -2},
        {xz: 2, wy: 2},
        {xy: 2, wz: 2},
        {ww: 1, xx: -1, yy: 1, zz: -1},
        {yz: 2, wx: -2},
        {xz: 2, wy: -2},
        {yz: 2, wx: 2},
        {ww: 1, xx: -1, yy: -1, zz: 1},
    )
    return tuple(tuple(float(entry.get(row, 0)) for entry in entries) for row in range(16))


_TURN = _rotation_table()
