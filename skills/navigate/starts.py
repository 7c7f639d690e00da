"""Navigate's starts: anywhere far from the object, or with it in hand from its goal."""

import functools
import math

import numpy as np

from skills.core.interface import SkillGoal
from skills.starts.dataset import BASE_EPISODES, DatasetStarts
from skills.starts.room import Draw, Room, free_cells, in_cell
from skills.starts.start import Start
from tpsrl.world.doors import joints_at
from tpsrl.world.episode import Episode
from tpsrl.world.floor import Joints, rounded
from tpsrl.world.geodesic import distance_field, free_floor

HELD_SHARE = 1 / 6  # of the starts have the object in hand, and go to its goal
FROM_M = 3.0  # at least, along the floor


def draw(base: Episode, rng: np.random.Generator) -> Draw:
    """Anywhere that is far enough from the object, or with it in hand from its goal."""
    target = base.targets[0]
    holds = bool(rng.random() < HELD_SHARE)
    x, y, z = target.goal if holds else base.objects[target.object].pos
    joints = rounded(joints_at(base.articulation))
    far = _far_cells(base.layout, joints, (x, y))
    room = Room(base, held=target.object if holds else -1)
    goal = SkillGoal(-1 if holds else target.object, (x, y, z))

    def attempt_at(attempt: int) -> Start | None:
        if not len(far):
            return None
        spot = in_cell(far[rng.integers(len(far))], rng)
        return room.start_at((*spot, float(rng.uniform(-math.pi, math.pi))), goal)

    return attempt_at


def _far_cells(layout: str, joints: Joints, goal: tuple[float, float]) -> np.ndarray:
    """Centres (n, 2) of the cells from which it is far enough to a goal."""
    cells = free_cells(layout, joints)
    return cells[np.unpackbits(_far_bits(layout, joints, goal), count=len(cells)).astype(bool)]


@functools.lru_cache(maxsize=2 * BASE_EPISODES)  # of every base episode object and goal: 10 MB
def _far_bits(layout: str, joints: Joints, goal: tuple[float, float]) -> np.ndarray:
    """Which of `free_cells` these are, as packed bits; worth keeping, since it takes 30 ms."""
    floor = free_floor(layout, joints)
    away = distance_field(floor, goal).distances(free_cells(layout, joints))
    return np.packbits(np.isfinite(away) & (away > FROM_M))


STARTS = DatasetStarts("rearrange_easy", draw)
