"""When the cup may suck: only where it takes the object and no other one."""

from typing import Any

# Suction starts when the object is within _RIM_M of the cup's centre, where the rim may touch it.
# With another object within _CLEAR_M, suction starts only at contact.
_RIM_M, _CLEAR_M, _TOUCHING_M = 0.026, 0.036, 0.002


def may_grip(own: Any, other: Any) -> Any:
    """Returns whether to close the grip, bool, for numbers or elementwise for arrays.

    Args:
        own: distance (m) of the cup from the surface of the object to pick
        other: distance (m) of the cup from the nearest other object
    """
    return ((own < _RIM_M) & (other > _CLEAR_M)) | (own < _TOUCHING_M)
