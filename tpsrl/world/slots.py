"""Slots of a home: places for objects, of which an episode fills some."""

import dataclasses

PRIMITIVES = ("box", "cylinder", "sphere")


@dataclasses.dataclass(frozen=True, slots=True)
class SlotPools:
    """How many object slots of each primitive a home has.

    Pools are larger than the number of objects, since an episode's mix of boxes and cylinders
    varies: with 18 and 16 for 30 objects, the generator redraws one Tidy House in four.
    """

    box: int
    cylinder: int
    sphere: int

    @property
    def total(self) -> int:
        """All slots."""
        return self.box + self.cylinder + self.sphere


# By the number of objects an episode may have: 12 for training, HAB's 30.
POOLS = {12: SlotPools(9, 8, 2), 30: SlotPools(20, 18, 2)}


def capacity_for(num_objects: int) -> int:
    """The smallest of `POOLS` that takes so many objects; the number itself where none does."""
    return min((capacity for capacity in POOLS if capacity >= num_objects), default=num_objects)
