"""ObjectNav's episodes: any pose on the main floor, and a category of the apartment.

As in Habitat's generator of ObjectNav episodes (HM3D-OVON, naokiyokoyama/ovon), all categories of
an apartment are equally frequent, and the nearest viewpoint is 1 to 30 m from the start along the
floor. Straight paths are not rejected: apartments are small, and the agent does not know the path.
"""

from collections.abc import Iterable

import numpy as np

from skills.core.interface import SkillGoal
from skills.pointnav.starts import (
    FARTHEST_M,
    NEAREST_M,
    PointNavStarts,
    arm_free,
    layout_in_turn,
)
from skills.spec import SkillSpec
from skills.starts.start import Start
from tpsrl.errors import RunError
from tpsrl.world.episode import Episode
from tpsrl.world.floor import CLOSED, random_base_pose
from tpsrl.world.viewpoints import category_field, instances, present

_STARTS_PER_CATEGORY = 40
_NUMBER = 103  # part of the seed


def objectnav_start(
    index: int,
    split: str = "val",
    seed: int = 0,
    layout_set: str = "replica_cad",
) -> Start:
    """Returns start `index` of a seed, independent of which other starts are drawn.

    Layouts of the split alternate. The goal's position is the centre of the instance to which the
    shortest path leads; it is privileged.

    Args:
        index: of the start
        split: "train" or "val"
        seed: of all starts
        layout_set: name of the layouts

    Raises:
        UserError: split, seed or index is out of range.
        RunError: many tries found no valid start and category.
    """
    layout, rng = layout_in_turn(index, split, seed, layout_set, _NUMBER)
    category, start = _draw(layout, rng)
    name = f"objectnav_{split}_{seed}_{index:05d}"
    episode = Episode(name, "objectnav", split, layout, start, (), (), category=category)
    return Start(episode, SkillGoal(position=nearest_centre(layout, category, start)))


def nearest_centre(
    layout: str, category: str, start: tuple[float, float, float]
) -> tuple[float, float, float]:
    """Returns the centre of the instance to which the shortest path from a start leads."""
    end = category_field(layout, category).path(*start[:2])[-1]
    found = instances(layout, category)
    nearest = min(found, key=lambda one: float(np.hypot(*(one.viewpoints - end).T).min()))
    return nearest.centre


def _draw(layout: str, rng: np.random.Generator) -> tuple[str, tuple[float, float, float]]:
    """Draws a category and a start (x, y, yaw)."""
    names = present(layout)
    for place in rng.permutation(len(names)):
        field = category_field(layout, names[place])
        for _ in range(_STARTS_PER_CATEGORY):
            start = random_base_pose(layout, rng, CLOSED)
            distance = field.distance(*start[:2])
            if NEAREST_M <= distance <= FARTHEST_M and arm_free(layout, start):
                return names[place], start
    raise RunError(f"objectnav: no start and category found in {layout}")


class ObjectNavStarts(PointNavStarts):
    """Start states of `objectnav_start`, a `skills.starts.source.StartStates` without objects."""

    def obtain(
        self,
        skill: SkillSpec,
        indices: Iterable[int],
        split: str,
        seed: int = 0,
        num_objects: int | None = None,
        processes: int | None = None,
    ) -> list[Start]:
        """See `objectnav_start`."""
        return [objectnav_start(index, split, seed) for index in indices]


STARTS = ObjectNavStarts()
