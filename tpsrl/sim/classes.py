"""Classes, instances and categories of the geoms in a home of the embedded engine."""

import numpy as np

from tpsrl.sim.home_model import HomeModel
from tpsrl.world.cameras import CLASSES
from tpsrl.world.categories import CATEGORIES, CATEGORY_BODIES, CATEGORY_PARTS


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


def geom_instances(home: HomeModel) -> tuple[np.ndarray, tuple[str, ...]]:
    """Numbers (ngeom,) uint8 of the instance that each geom belongs to, and the instances' names.

    Walls are one instance, as is the robot. Each piece of furniture, door, drawer and object is an
    instance of its own: "sofa", "top_door", "object_3" (the index in `Episode.objects`). Number 0
    is "nothing".
    """
    names = {"nothing": 0}
    found = np.zeros(home.model.ngeom, dtype=np.uint8)
    classes = geom_classes(home)
    for geom in range(home.model.ngeom):
        name = home.model.geom(geom).name.partition("/")[0]
        kind = CLASSES[classes[geom]]
        if kind in ("wall", "robot"):
            name = kind
        elif kind == "object":
            name = f"object_{home.geom_slot[geom]}"
        found[geom] = names.setdefault(name, len(names))
    return found, tuple(names)


def geom_categories(home: HomeModel) -> np.ndarray:
    """Returns the category of each geom: (ngeom,) uint8, 1 + its index in `CATEGORIES`, 0 for none.

    Doors and drawers have the category of their furniture. A part that is a category of its own,
    such as the sink of a counter, has that category.
    """
    bodies: dict[str, str] = {}
    for body, what in home.layout_set.bodies.items():
        bodies |= dict.fromkeys((body, *(link.name for link in what.links)), body)
    found = np.zeros(home.model.ngeom, dtype=np.uint8)
    # Parts come last, since they are within a body of another category.
    for category in sorted(CATEGORY_BODIES, key=CATEGORY_PARTS.__contains__):
        parts = CATEGORY_PARTS.get(category)
        for geom in range(home.model.ngeom):
            name, _, part = home.model.geom(geom).name.partition("/")
            if bodies.get(name) in CATEGORY_BODIES[category] and (parts is None or part in parts):
                found[geom] = 1 + CATEGORIES.index(category)
    return found
