"""Pictures among an environment's observations, told by the ends of their names."""

from collections.abc import Iterable
from typing import Any

import numpy as np

DEPTH = "depth"  # (H, W) float32 in [0, 1]
COLOUR = "rgb"  # (H, W, 3) uint8
CLASSES = "semantic"  # (H, W) uint8, numbers of classes
INSTANCES = "instance"  # (H, W) uint8, numbers of instances
_KINDS = (DEPTH, COLOUR, CLASSES, INSTANCES)


def kind_of(name: str) -> str | None:
    """Returns the kind of picture that an observation is, or None where it is not a picture.

    The kind is the last word of the name: "depth", "hand_depth", "head_rgb", "head_semantic".
    """
    kind = name.rpartition("_")[2]
    return kind if kind in _KINDS else None


def pictures_of(names: Iterable[str]) -> tuple[str, ...]:
    """Those that are pictures, in their order."""
    return tuple(name for name in names if kind_of(name) is not None)


def dtype_of(name: str) -> Any:
    """The numpy type of an observation: float32, but uint8 for all pictures except depth."""
    return np.float32 if kind_of(name) in (None, DEPTH) else np.uint8
