"""What a skill measures of worlds at every step, and what it remembers from step to step."""

import dataclasses
from typing import TypeVar

from skills.core.arrays import Array
from skills.core.geometry import holding, length, rest_vector, seen
from skills.core.structs import Struct
from tpsrl.world.state import WorldState


# What is made at every step is not frozen, which would cost three times as much to make.
@dataclasses.dataclass(slots=True)
class Measures:
    """What all skills measure of n homes; a skill adds its own in a dataclass derived from this.

    Vectors are metres in the frame of the base. `subject` is what the cup is to come to: the
    object, the handle, or where to go. `rest` is how far the end effector is from its resting
    point.
    """

    ee: Array  # (n, 3)
    subject: Array  # (n, 3)
    to_rest: Array  # (n, 3) from the end effector to its resting point
    rest: Array  # (n,) m
    holding: Array  # (n,) bool, the cup holds an object or a handle
    velocity: Array  # (n, 3) of the base: forward and left in m/s, turn in rad/s

    def goal_point(self) -> Array:
        """(n, 3) where to place or go; of other skills the subject."""
        return self.subject


def common(
    world: WorldState, subject: Array, *others: Array
) -> tuple[dict[str, Array], list[Array]]:
    """The fields of `Measures` by name, and `others`, in the frame of the base.

    Subject and others are points (n, 3) of the world.
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
    """What a skill remembers of n homes from step to step: a dataclass of arrays (n, ...).

    This one remembers nothing.
    """


MeasuresT = TypeVar("MeasuresT", bound=Measures)
MemoryT = TypeVar("MemoryT", bound=Memory)
