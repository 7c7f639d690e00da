"""Interiors of the fridge and the drawers, in the world frame of a layout."""

import dataclasses
import functools

import numpy as np

from tpsrl.world.geometry import quat_matrix
from tpsrl.world.layouts import LayoutSet, load_layout_set, placed_receptacles, resolve


@dataclasses.dataclass(frozen=True, slots=True)
class Container:
    """A box of free space behind one handle.

    `pos` (3,) is the centre (m) with the joint at 0, `rotation` (3, 3) has the axes, `half` (3,)
    the half sizes (m), and `slide` (3,) is the displacement per metre of joint travel (0 behind a
    door).
    """

    pos: np.ndarray
    rotation: np.ndarray
    half: np.ndarray
    slide: np.ndarray

    def depth_inside(self, point: np.ndarray, joint: float) -> float:
        """Returns how deep (m) a point (3,) is inside, negative outside, at joint value `joint`."""
        local = self.rotation.T @ (point - self.pos - joint * self.slide)
        return float(np.min(self.half - np.abs(local)))


@functools.lru_cache(maxsize=256)
def containers(layout: str, marker: str) -> tuple[Container, ...]:
    """Returns the boxes behind the handle `marker` in the layout "SET/NAME"; none for some drawers.

    Raises:
        UserError: there is no such layout or marker.
    """
    layout_set, chosen = resolve(layout)
    body, link = layout_set.link(marker)
    slides = link.joint == "slide"
    axis = quat_matrix(chosen.poses[body].quat) @ np.asarray(link.axis)
    behind = _behind(layout_set, marker)
    return tuple(
        Container(placed.pos, placed.rotation, placed.half, axis if slides else np.zeros(3))
        for placed in placed_receptacles(layout_set, chosen)
        if placed.body == body and placed.name in behind
    )


@dataclasses.dataclass(frozen=True, slots=True)
class HandleContents:
    """Moving link of a marker, and the short names of the receptacles that it opens."""

    link: str
    receptacles: tuple[str, ...]


def handles(layout_set: str) -> dict[str, HandleContents]:
    """Returns every marker of a layout set with its link and receptacles.

    Raises:
        UserError: there is no such layout set.
    """
    loaded = load_layout_set(layout_set)
    links = [link for body in loaded.bodies.values() for link in body.links]
    return {link.key: HandleContents(link.name, _behind(loaded, link.key)) for link in links}


def _behind(layout_set: LayoutSet, marker: str) -> tuple[str, ...]:
    """Returns the receptacles that a drawer carries, or those of its body behind a door."""
    body, link = layout_set.link(marker)
    carrier = link.name if link.joint == "slide" else ""
    return tuple(
        receptacle.name
        for receptacle in layout_set.receptacles.values()
        if body in receptacle.bodies and receptacle.link == carrier
    )
