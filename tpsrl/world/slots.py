"""Slots of a home: preallocated bodies, of which the objects of an episode use the first ones."""

# A slot can have any of these shapes.
PRIMITIVES = ("box", "cylinder", "sphere")

# Numbers of slots of a home: 12 for training, 30 as in HAB.
CAPACITIES = (12, 30)


def capacity_for(num_objects: int) -> int:
    """Returns the smallest of `CAPACITIES` >= `num_objects`, or `num_objects` if there is none."""
    return min(
        (capacity for capacity in CAPACITIES if capacity >= num_objects), default=num_objects
    )
