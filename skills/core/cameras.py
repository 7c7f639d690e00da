"""Parsing of the setting `cameras`, the pictures in an observation: `head_depth:64,hand_rgb:32`."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tpsrl import config
from tpsrl.errors import UserError, unknown
from tpsrl.world.cameras import PICTURES, Sides

Cameras = str | Mapping[str, Any]  # the setting as the user gives it
_USUAL = 64  # side in pixels that error messages suggest


def parse(given: Cameras) -> dict[str, Sides]:
    """Parses names and sizes of pictures.

    Args:
        given: text such as `head_depth:64,head_rgb:48x64` (HEIGHTxWIDTH; one number is a square),
            or a mapping of sizes by name

    Returns:
        (height, width) by name, in the order of `tpsrl.world.cameras.PICTURES`.

    Raises:
        UserError: a picture is unknown (the message names the nearest) or named twice, a size is
            missing or out of range, or no picture is named.
    """
    pairs = _pairs(given) if isinstance(given, str) else given.items()
    found: dict[str, Sides] = {}
    for name, size in pairs:
        if name not in PICTURES:
            raise unknown("cameras", name, PICTURES)
        if name in found:
            raise UserError(f"cameras: {name} is named twice")
        found[name] = sides(size, f"cameras: {name}")
    if not found:
        raise UserError(f"cameras: name at least one; nearest: {PICTURES[0]}:{_USUAL}")
    return {name: found[name] for name in PICTURES if name in found}


def text(sizes: Mapping[str, Sides]) -> str:
    """Formats pictures as text that `parse` accepts."""
    return ",".join(f"{name}:{_size(sides)}" for name, sides in sizes.items())


def sides(size: Any, field: str) -> Sides:
    """Converts a size to (height, width); one number stands for both.

    Args:
        size: an integer or a pair of integers
        field: name of the setting, for the error message

    Raises:
        UserError: `size` is not one or two integers >= 1, or a side exceeds `config.MOST_PIXELS`.
    """
    pair = tuple(size) if isinstance(size, Iterable) and not isinstance(size, str) else (size, size)
    whole = all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in pair)
    if len(pair) != 2 or not whole or min(pair) < 1:
        raise UserError(f"{field}: {size!r} is not an integer >= 1 or a (height, width) pair")
    if max(pair) > config.MOST_PIXELS:
        raise UserError(
            f"{field}: {size!r} is out of range, a side has at most {config.MOST_PIXELS} pixels"
        )
    return (int(pair[0]), int(pair[1]))


def _pairs(given: str) -> Iterable[tuple[str, Any]]:
    for part in filter(None, (part.strip() for part in given.split(","))):
        name, colon, size = part.partition(":")
        if name in PICTURES and not colon:
            raise UserError(f"cameras: {name} has no size; nearest: {name}:{_USUAL}")
        numbers = size.split("x")
        if not all(number.isdecimal() for number in numbers):
            yield name, size
        elif len(numbers) == 1:
            yield name, int(size)
        else:
            yield name, tuple(map(int, numbers))


def _size(sides: Sides) -> str:
    height, width = sides
    return str(height) if height == width else f"{height}x{width}"
