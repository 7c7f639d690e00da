"""The robot's cameras, their pictures, and the classes of semantic pictures."""

import functools
from collections.abc import Mapping

import numpy as np

CAMERAS = ("head", "hand")
KINDS = ("depth", "rgb", "semantic", "instance", "category")
DEPTH, COLOUR, SEMANTIC, INSTANCE, CATEGORY = KINDS
PICTURES = tuple(f"{camera}_{kind}" for camera in CAMERAS for kind in KINDS)
HEAD_DEPTH, HEAD_RGB, HEAD_CATEGORY = "head_depth", "head_rgb", "head_category"

# A pixel of a semantic picture is an index into these classes.
CLASSES = ("nothing", "floor", "wall", "furniture", "door_or_drawer", "robot", "object")

Sides = tuple[int, int]  # height and width of a picture, pixels


def split(picture: str) -> tuple[str, str]:
    """Splits the name of a picture into camera and kind, such as "head" and "rgb"."""
    camera, kind = picture.split("_")
    return camera, kind


def shape_of(picture: str, sides: Sides) -> tuple[int, ...]:
    """Returns the shape of a picture: (height, width), or (height, width, 3) for colour."""
    return (*sides, 3) if split(picture)[1] == COLOUR else sides


def blank(picture: str, sides: Sides, count: int) -> np.ndarray:
    """Allocates an array for `count` pictures: float32 for depth, uint8 for all others."""
    kind = np.float32 if split(picture)[1] == DEPTH else np.uint8
    return np.empty((count, *shape_of(picture, sides)), kind)


def bytes_of(sizes: Mapping[str, Sides]) -> int:
    """Returns the memory in bytes of one picture of each name and size, summed."""
    return sum(blank(name, sides, 1).nbytes for name, sides in sizes.items())


@functools.lru_cache(maxsize=64)
def views(
    sizes: tuple[tuple[str, Sides], ...],
) -> tuple[tuple[str, Sides, tuple[tuple[str, str], ...]], ...]:
    """Groups pictures into views of equal camera and size, each of which is cast once.

    Returns:
        For each view its camera, its size, and the names and kinds of its pictures.
    """
    found: dict[tuple[str, Sides], list[tuple[str, str]]] = {}
    for picture, sides in sizes:
        camera, kind = split(picture)
        found.setdefault((camera, sides), []).append((picture, kind))
    return tuple((camera, sides, tuple(names)) for (camera, sides), names in found.items())
