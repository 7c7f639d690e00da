"""The robot's cameras, the pictures that each takes, and the classes of what they show."""

import functools
from collections.abc import Mapping

import numpy as np

CAMERAS = ("head", "hand")
DEPTH, COLOUR, SEMANTIC, INSTANCE = KINDS = ("depth", "rgb", "semantic", "instance")
PICTURES = tuple(f"{camera}_{kind}" for camera in CAMERAS for kind in KINDS)
HEAD_DEPTH = "head_depth"

# What a pixel of a semantic picture says: the number of the class of what is seen there.
CLASSES = ("nothing", "floor", "wall", "furniture", "door_or_drawer", "robot", "object")

Sides = tuple[int, int]  # height and width of a picture, pixels


def split(picture: str) -> tuple[str, str]:
    """The camera and the kind of a picture by its name, such as "head" and "rgb"."""
    camera, kind = picture.split("_")
    return camera, kind


def shape_of(picture: str, sides: Sides) -> tuple[int, ...]:
    """The shape of a picture: (height, width), of colour (height, width, 3)."""
    return (*sides, 3) if split(picture)[1] == COLOUR else sides


def blank(picture: str, sides: Sides, count: int) -> np.ndarray:
    """Room for so many pictures: depth is float32, all others are uint8."""
    kind = np.float32 if split(picture)[1] == DEPTH else np.uint8
    return np.empty((count, *shape_of(picture, sides)), kind)


def bytes_of(sizes: Mapping[str, Sides]) -> int:
    """How much memory one picture of each name and size takes together."""
    return sum(blank(name, sides, 1).nbytes for name, sides in sizes.items())


@functools.lru_cache(maxsize=64)
def views(
    sizes: tuple[tuple[str, Sides], ...],
) -> tuple[tuple[str, Sides, tuple[tuple[str, str], ...]], ...]:
    """Pictures by what they have in common, camera and size: all of one view take one cast.

    Of each view camera, size, and names and kinds of its pictures.
    """
    found: dict[tuple[str, Sides], list[tuple[str, str]]] = {}
    for picture, sides in sizes:
        camera, kind = split(picture)
        found.setdefault((camera, sides), []).append((picture, kind))
    return tuple((camera, sides, tuple(names)) for (camera, sides), names in found.items())
