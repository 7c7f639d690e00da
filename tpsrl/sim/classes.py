"""Semantic classes of the geoms in a home of the embedded engine."""

import numpy as np

from tpsrl.sim.home_model import HomeModel
from tpsrl.world.cameras import CLASSES


def geom_classes(home: HomeModel) -> np.ndarray:
    """Returns the class of each geom: (ngeom,) uint8 indices into `tpsrl.world.cameras.CLASSES`."""
    model = home.model
    walls = [model.geom(wall.name).id for wall in home.layout_set.walls]
    found = np.full(model.ngeom, CLASSES.index("furniture"), dtype=np.uint8)
    found[model.geom_bodyid != 0] = CLASSES.index("door_or_drawer")
    found[home.robot_geom] = CLASSES.index("robot")
    found[home.geom_slot >= 0] = CLASSES.index("object")
    found[walls] = CLASSES.index("wall")
    found[home.floor_geom] = CLASSES.index("floor")
    return found
