"""When the cup may suck: only where it takes the object and no other one.

All functions take numbers, or arrays elementwise: `own`, the distance (m) of the cup from the
surface of the object to pick, and `other`, its distance from the nearest other object.
"""

from typing import Any

_TOUCHING_M = 0.002
# Suction starts when the object is within _RIM_M of the cup's centre, where the rim may touch it.
# With another object within _CLEAR_M, suction starts only at contact.
_RIM_M, _CLEAR_M = 0.026, 0.036
_NEAR_M, _APART_M = 0.15, 0.03


def may_grip(own: Any, other: Any) -> Any:
    """Returns whether a planned grasp may close the grip, bool."""
    return ((own < _RIM_M) & (other > _CLEAR_M)) | (own < _TOUCHING_M)


def should_grip(own: Any, other: Any) -> Any:
    """Returns whether a policy should close the grip, bool.

    It closes earlier than a planned grasp, since a policy does not touch the object exactly where
    it means to: as soon as the cup is near the object and at least 3 cm farther from other ones.
    """
    return ((own < _NEAR_M) & (own + _APART_M < other)) | (own < _TOUCHING_M)
