"""ObjectNav's episodes: anywhere on the main floor, any heading, and a category that is there.

As Habitat's generators of ObjectNav episodes (HM3D-OVON's, naokiyokoyama/ovon), every category of
an apartment comes up equally often, and its nearest viewpoint is 1 to 30 m from the start along the
floor. Straight ways are not refused: apartments are small, and the way is not known beforehand.
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
    """Start `index` of a seed, which is the same whatever others are drawn.

    Layouts of the split take turns. The goal's position is the middle of the instance to which the
    shortest path leads; no sensor of a robot shows it.

    Raises:
        UserError: split, seed or index is out of range.
        RunError: no start and category were good after many tries.
    """
    layout, rng = layout_in_turn(index, split, seed, layout_set, _NUMBER)
    category, start = _draw(layout, rng)
    name = f"objectnav_{split}_{seed}_{index:05d}"
    episode = Episode(name, "objectnav", split, layout, start, (), (), category=category)
    return Start(episode, SkillGoal(position=nearest_centre(layout, category, start)))


def nearest_centre(
    layout: str, category: str, start: tuple[float, float, float]
) -> tuple[float, float, float]:
    """The middle of the instance that the shortest path from a start leads to."""
    end = category_field(layout, category).path(*start[:2])[-1]
    found = instances(layout, category)
    nearest = min(found, key=lambda one: float(np.hypot(*(one.viewpoints - end).T).min()))
    return nearest.centre


def _draw(layout: str, rng: np.random.Generator) -> tuple[str, tuple[float, float, float]]:
    """A category and a start (x, y, yaw)."""
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
    """`objectnav_start` as a `skills.starts.source.StartStates`; there are no loose objects."""

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
