"""Which pictures a policy is shown, as a user names them: `head_depth:64,hand_rgb:32`."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tpsrl import config
from tpsrl.errors import UserError, unknown
from tpsrl.world.cameras import PICTURES, Sides

Cameras = str | Mapping[str, Any]  # what a user gives
_USUAL = 64  # pixels a side


def parse(given: Cameras) -> dict[str, Sides]:
    """Pictures by name, (height, width) each, in the order of `tpsrl.world.cameras.PICTURES`.

    Args:
        given: names and sizes as text, `head_depth:64,head_rgb:48x64` (one number: a square), or
            sizes by name

    Raises:
        UserError: there is no such picture (names the nearest), one is named twice, or a size is
            missing or out of range.
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
    """The pictures as `parse` takes them."""
    return ",".join(f"{name}:{_size(sides)}" for name, sides in sizes.items())


def sides(size: Any, field: str) -> Sides:
    """A size as (height, width); one number is both.

    Raises:
        UserError: it is not one or two whole numbers of at least 1, or a side is longer than
            `config.MOST_PIXELS`; `field` is where it was given.
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
