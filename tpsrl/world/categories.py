"""Categories of furniture and fixtures that are goals of ObjectNav."""

from tpsrl.errors import unknown

# Bodies of each category.
CATEGORY_BODIES: dict[str, tuple[str, ...]] = {
    "chair": ("chair_01_0", "chair_01_1"),
    "sofa": ("sofa",),
    "table": ("table_01", "table_02", "table_03"),
    "tv": ("tv_screen",),
    "tv_stand": ("tvstand",),
    "bookcase": ("wall_cabinet_01", "wall_cabinet_02"),
    "cabinet": ("cabinet",),
    "cupboard": ("kitchenCupboard_01",),
    "chest_of_drawers": ("chestOfDrawers_01",),
    "beanbag": ("beanbag_0", "beanbag_1"),
    "bike": ("bike_01", "bike_02"),
    "plant": ("indoor_plant_02",),
    "clothes_hanger": ("clothes_hanger_02",),
    "fridge": ("fridge",),
    "counter": ("kitchen_counter",),
    "sink": ("kitchen_counter",),
}
# Boxes of each category that is only a part of its body.
CATEGORY_PARTS = {
    "sink": ("sink_edge_left", "sink_edge_right", "worktop_sink_back", "worktop_sink_front", "tap")
}
CATEGORIES = tuple(CATEGORY_BODIES)


def check_category(name: str, where: str = "category") -> None:
    """Checks that a category exists.

    Raises:
        UserError: the category is unknown; the message names the nearest one.
    """
    if name not in CATEGORY_BODIES:
        raise unknown(where, name, CATEGORIES)
