"""Slots of a home: places for objects, of which an episode fills the first ones."""

# A slot takes an object of any of these shapes.
PRIMITIVES = ("box", "cylinder", "sphere")

# How many slots the homes that are built have: 12 for training, HAB's 30.
CAPACITIES = (12, 30)


def capacity_for(num_objects: int) -> int:
    """The smallest of `CAPACITIES` that takes so many; the number itself where none does."""
    return min(
        (capacity for capacity in CAPACITIES if capacity >= num_objects), default=num_objects
    )
