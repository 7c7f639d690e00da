"""YCB objects of HAB as geometric primitives."""

import dataclasses
import functools
import gzip
import json
import math
from importlib import resources

import numpy as np

from tpsrl.errors import unknown

# HAB's nine objects of Tidy House, for clutter and targets.
TIDY_HOUSE = (
    "002_master_chef_can",
    "003_cracker_box",
    "004_sugar_box",
    "005_tomato_soup_can",
    "007_tuna_fish_can",
    "008_pudding_box",
    "009_gelatin_box",
    "010_potted_meat_can",
    "024_bowl",
)
# The twenty objects of HAB's rearrange_easy dataset.
REARRANGE_EASY = (
    *TIDY_HOUSE[:-1],
    "011_banana",
    "012_strawberry",
    "013_apple",
    "014_lemon",
    "015_peach",
    "016_pear",
    "017_orange",
    "018_plum",
    "021_bleach_cleanser",
    "024_bowl",
    "025_mug",
    "026_sponge",
)

# Colours that resemble the products, RGB in 0 to 1, so that objects can be recognised in videos.
_COLOURS = {
    "002_master_chef_can": (0.20, 0.30, 0.62),
    "003_cracker_box": (0.80, 0.16, 0.14),
    "004_sugar_box": (0.95, 0.80, 0.22),
    "005_tomato_soup_can": (0.86, 0.28, 0.20),
    "007_tuna_fish_can": (0.36, 0.62, 0.80),
    "008_pudding_box": (0.46, 0.28, 0.16),
    "009_gelatin_box": (0.86, 0.36, 0.46),
    "010_potted_meat_can": (0.22, 0.36, 0.74),
    "013_apple": (0.74, 0.12, 0.14),
    "024_bowl": (0.88, 0.45, 0.18),
}


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectKind:
    """Kind of object as a primitive: "box", upright "cylinder" or "sphere"; metres, kilograms.

    `half` has the half extents of the bounding box at identity orientation: (radius, radius, half
    height) for a cylinder, (radius, radius, radius) for a sphere.
    """

    name: str
    primitive: str
    half: tuple[float, float, float]
    mass: float
    rgb: tuple[float, float, float]

    @property
    def size(self) -> np.ndarray:
        """Size (3,) in the format of MuJoCo's `geom_size`."""
        x, _, z = self.half
        if self.primitive == "box":
            return np.array(self.half)
        return np.array([x, z, 0.0]) if self.primitive == "cylinder" else np.array([x, 0.0, 0.0])

    @property
    def bounding_radius(self) -> float:
        """Radius of the bounding sphere around the centre, metres."""
        x, y, z = self.half
        if self.primitive == "box":
            return math.sqrt(x * x + y * y + z * z)
        return math.hypot(x, z) if self.primitive == "cylinder" else x

    @property
    def inertia(self) -> np.ndarray:
        """Principal moments of inertia (3,) of the solid primitive, kg m2."""
        x, y, z = self.half
        if self.primitive == "box":
            return self.mass / 3 * np.array([y * y + z * z, x * x + z * z, x * x + y * y])
        if self.primitive == "cylinder":
            side = self.mass * (3 * x * x + 4 * z * z) / 12
            return np.array([side, side, self.mass * x * x / 2])
        return np.full(3, 0.4 * self.mass * x * x)


@functools.cache
def object_kinds() -> dict[str, ObjectKind]:
    """Returns all known kinds of objects by YCB name."""
    packed = resources.files("tpsrl.world").joinpath("data/replica_cad.json.gz").read_bytes()
    kinds = {}
    for name, record in json.loads(gzip.decompress(packed))["ycb"].items():
        if record["primitive"] == "box":
            half = tuple(record["half"])
        elif record["primitive"] == "cylinder":
            half = (record["radius"], record["radius"], record["half_height"])
        else:
            half = (record["radius"],) * 3
        rgb = _COLOURS.get(name, (0.55, 0.55, 0.60))
        kinds[name] = ObjectKind(name, record["primitive"], half, record["mass"], rgb)
    return kinds


def object_kind(name: str) -> ObjectKind:
    """Returns the kind of object with a YCB name.

    Raises:
        UserError: the name is unknown; the message names the nearest one.
    """
    kinds = object_kinds()
    if name not in kinds:
        raise unknown("object", name, kinds)
    return kinds[name]
