"""Pictures among an environment's observations, recognised by the last word of their names."""

from collections.abc import Iterable
from typing import Any

import numpy as np

DEPTH = "depth"  # (H, W) float32 in [0, 1]
COLOUR = "rgb"  # (H, W, 3) uint8
CLASSES = "semantic"  # (H, W) uint8, numbers of classes
INSTANCES = "instance"  # (H, W) uint8, numbers of instances
CATEGORIES = "category"  # (H, W) uint8, numbers of categories to search for
_KINDS = (DEPTH, COLOUR, CLASSES, INSTANCES, CATEGORIES)


def kind_of(name: str) -> str | None:
    """Returns the kind of a picture, such as `DEPTH` or `COLOUR`; None for other observations.

    The kind is the last word of the name: "depth", "hand_depth", "head_rgb", "head_semantic".
    """
    kind = name.rpartition("_")[2]
    return kind if kind in _KINDS else None


def pictures_of(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the names of pictures, in their order."""
    return tuple(name for name in names if kind_of(name) is not None)


def dtype_of(name: str) -> Any:
    """Returns the numpy type of an observation: uint8 for pictures except depth, else float32."""
    return np.float32 if kind_of(name) in (None, DEPTH) else np.uint8
