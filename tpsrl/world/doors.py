"""Doors and drawers of an apartment: their positions, and the receptacles that they carry."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from tpsrl.world.floor import CLOSED, Joints
from tpsrl.world.handles import handle
from tpsrl.world.layouts import PlacedReceptacle, placed_receptacles, resolve
from tpsrl.world.state import JOINTS


def joints_at(opened: Mapping[str, float]) -> Joints:
    """Returns positions of all `JOINTS` (rad, m), with joints missing in `opened` closed."""
    return tuple(float(opened.get(marker, 0.0)) for marker in JOINTS)


def travel(layout: str, marker: str, start: Joints, end: Joints) -> np.ndarray:
    """Returns the displacement (3,) of a drawer's contents when all joints move, metres.

    Zero for a `marker` of "", which stands for everything outside drawers.
    """
    if not marker:
        return np.zeros(3)
    moving = handle(layout, marker)
    change = end[moving.index] - start[moving.index]
    return change * moving.motion(0.0, moving.point(0.0))


def moved_receptacles(layout: str, joints: Joints) -> list[PlacedReceptacle]:
    """Returns the receptacles of layout "SET/NAME" with its drawers at `joints`."""
    return [moved(layout, r, joints) for r in placed_receptacles(*resolve(layout))]


def moved(layout: str, receptacle: PlacedReceptacle, joints: Joints) -> PlacedReceptacle:
    """Returns a receptacle with its drawer at `joints`."""
    way = travel(layout, receptacle.marker, CLOSED, joints)
    return dataclasses.replace(receptacle, pos=receptacle.pos + way)
