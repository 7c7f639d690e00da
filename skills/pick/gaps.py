"""Distances of the cup from the object to pick and from the others, for planned grasps."""

import numpy as np

from tpsrl.world.collision import Bodies, distances_to
from tpsrl.world.state import WorldState


def gaps(objects: Bodies, index: int, world: WorldState) -> tuple[float, float]:
    """Returns the distances (m) of the cup's tip from an object and from the nearest other one.

    Args:
        objects: all objects of the episode, as they lie now
        index: which one is to be picked
        world: state of one home
    """
    cup = np.asarray(world.ee_pos[0], dtype=np.float64)
    away = distances_to(objects.kind, objects.centre, objects.rotation, objects.half, cup)
    own = float(away[index])
    away[index] = np.inf
    return own, float(away.min())
