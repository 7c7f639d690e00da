"""The inside of the fridge and of the drawers, in the world frame of a layout."""

import dataclasses
import functools

import numpy as np

from tpsrl.world.geometry import quat_matrix
from tpsrl.world.layouts import placed_receptacles, resolve


@dataclasses.dataclass(frozen=True, slots=True)
class Container:
    """A box of free space behind one handle.

    `pos` (3,) is the centre (m) with the joint at 0, `rotation` (3, 3) the axes, `half` (3,) the
    half sizes (m), `slide` (3,) the way it moves per metre of joint travel (0 behind a door).
    """

    pos: np.ndarray
    rotation: np.ndarray
    half: np.ndarray
    slide: np.ndarray

    def depth_inside(self, point: np.ndarray, joint: float) -> float:
        """How deep (m) a point (3,) is inside, negative outside, with the joint at `joint`."""
        local = self.rotation.T @ (point - self.pos - joint * self.slide)
        return float(np.min(self.half - np.abs(local)))


@functools.lru_cache(maxsize=256)
def containers(layout: str, marker: str) -> tuple[Container, ...]:
    """What is behind the handle `marker` in the layout "SET/NAME"; nothing for some drawers.

    A drawer carries its receptacle along; a fridge door closes the standing receptacles of its
    body.

    Raises:
        UserError: there is no such layout or marker.
    """
    layout_set, chosen = resolve(layout)
    body, link = layout_set.link(marker)
    slides = link.joint == "slide"
    axis = quat_matrix(chosen.poses[body].quat) @ np.asarray(link.axis)
    return tuple(
        Container(placed.pos, placed.rotation, placed.half, axis if slides else np.zeros(3))
        for placed in placed_receptacles(layout_set, chosen)
        if placed.marker == marker or (not slides and placed.body == body and not placed.marker)
    )
