"""Measures that a skill computes at every step, and its memory between steps."""

import dataclasses
from typing import TypeVar

from skills.core.arrays import Array
from skills.core.geometry import holding, length, rest_vector, seen
from skills.core.structs import Struct
from tpsrl.world.state import WorldState


# Not frozen, since measures are created at every step and would take three times as long.
@dataclasses.dataclass(slots=True)
class Measures:
    """Measures that all skills share, for n homes; a skill adds its own in a subclass.

    Vectors are in the frame of the base, in metres. `subject` is the point that the cup has to
    reach: the object, the handle, or the position to go to. `rest` is the distance of the end
    effector from its resting point.
    """

    ee: Array  # (n, 3)
    subject: Array  # (n, 3)
    to_rest: Array  # (n, 3) from the end effector to its resting point
    rest: Array  # (n,) m
    holding: Array  # (n,) bool, the cup holds an object or a handle
    velocity: Array  # (n, 3) of the base: forward and left in m/s, turn in rad/s

    def goal_point(self) -> Array:
        """Returns the point (n, 3) at which to place or to which to go; by default the subject."""
        return self.subject


def common(
    world: WorldState, subject: Array, *others: Array
) -> tuple[dict[str, Array], list[Array]]:
    """Computes the fields of `Measures`, and transforms other points to the frame of the base.

    Args:
        world: state of n homes
        subject: (n, 3) point in the world frame
        others: further points (n, 3) in the world frame

    Returns:
        The fields by name, and `others` in the frame of the base.
    """
    local = seen(world, subject, *others)
    ee = local[:, 0]
    to_rest = rest_vector(ee)
    shared = {
        "ee": ee,
        "subject": local[:, 1],
        "to_rest": to_rest,
        "rest": length(to_rest),
        "holding": holding(world),
        "velocity": local[:, -1],
    }
    return shared, [local[:, 2 + place] for place in range(len(others))]


@dataclasses.dataclass(slots=True)
class Memory(Struct):
    """Memory of a skill between steps, for n homes: a dataclass of arrays (n, ...).

    The base class is empty.
    """


MeasuresT = TypeVar("MeasuresT", bound=Measures)
MemoryT = TypeVar("MemoryT", bound=Memory)
