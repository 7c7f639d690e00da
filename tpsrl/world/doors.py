"""Doors and drawers of an apartment: where they are, and what goes along with them."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from tpsrl.world.floor import CLOSED, Joints
from tpsrl.world.handles import handle
from tpsrl.world.layouts import PlacedReceptacle, placed_receptacles, resolve
from tpsrl.world.state import JOINTS


def joints_at(opened: Mapping[str, float]) -> Joints:
    """Positions of all `JOINTS` (rad, m), those that are not named closed."""
    return tuple(float(opened.get(marker, 0.0)) for marker in JOINTS)


def travel(layout: str, marker: str, start: Joints, end: Joints) -> np.ndarray:
    """How far (3,) a drawer's contents go when all joints move; `marker` is "" for the rest."""
    if not marker:
        return np.zeros(3)
    moving = handle(layout, marker)
    change = end[moving.index] - start[moving.index]
    return change * moving.motion(0.0, moving.point(0.0))


def moved_receptacles(layout: str, joints: Joints) -> list[PlacedReceptacle]:
    """The receptacles of "SET/NAME" with its drawers where the joints have them."""
    return [moved(layout, r, joints) for r in placed_receptacles(*resolve(layout))]


def moved(layout: str, receptacle: PlacedReceptacle, joints: Joints) -> PlacedReceptacle:
    """A receptacle with its drawer where the joints have it."""
    way = travel(layout, receptacle.marker, CLOSED, joints)
    return dataclasses.replace(receptacle, pos=receptacle.pos + way)
