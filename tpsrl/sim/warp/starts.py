"""Start states, prepared by a home of the C engine, as rows of the device's arrays.

The C engine derives the fields that follow from a layout and an object's size, rejects overlaps and
puts held objects under the cup, so that start states of both engines are equal in float32.
"""

import dataclasses
from typing import Any

import numpy as np

from tpsrl.sim.home_model import C_ENGINE_FIELDS, MUTABLE_FIELDS, HomeModel
from tpsrl.sim.mujoco_home import MujocoHome
from tpsrl.world.episode import Episode
from tpsrl.world.objects import object_kind

# Model fields that an episode changes and the device needs; depth needs no colours.
_LEFT_OUT = (*C_ENGINE_FIELDS, "geom_rgba")
MODEL_FIELDS = tuple(name for name in MUTABLE_FIELDS if name not in _LEFT_OUT)
# Poses are included because the device never recomputes those of static geoms.
DATA_FIELDS = (
    "qpos",
    "qvel",
    "qacc_warmstart",
    "ctrl",
    "time",
    "eq_active",
    "xpos",
    "xquat",
    "xmat",
    "xipos",
    "ximat",
    "geom_xpos",
    "geom_xmat",
)


@dataclasses.dataclass(frozen=True, slots=True)
class BatchStart:
    """Start state of one home, float64 as in the C engine."""

    episode: Episode
    model: dict[str, np.ndarray]  # by MODEL_FIELDS
    data: dict[str, np.ndarray]  # by DATA_FIELDS
    held: int  # slot, -1 for none
    arm_target: np.ndarray  # (7,)
    longest: np.ndarray  # (slots,) metres, the longest side of each object
    object_geom: np.ndarray  # (slots,) the geom that each object uses


def start_of(home: HomeModel, one: MujocoHome) -> BatchStart:
    """Returns the start state of a home that has just been reset."""
    assert one.episode is not None
    kinds = [object_kind(placed.name) for placed in one.episode.objects]
    longest, geoms = np.zeros(home.capacity), np.full(home.capacity, -1)
    for slot, kind in enumerate(kinds):
        longest[slot], geoms[slot] = 2.0 * max(kind.half), home.object_geom(slot, kind)
    return BatchStart(
        one.episode,
        _copies(one.model, MODEL_FIELDS),
        _copies(one.data, DATA_FIELDS),
        one.held,
        one.arm_target.copy(),
        longest,
        geoms,
    )


def _copies(source: Any, fields: tuple[str, ...]) -> dict[str, np.ndarray]:
    return {name: np.array(getattr(source, name)) for name in fields}
