"""Start states of Navigate: far from the object, or with the object in hand far from its goal."""

import dataclasses
import math

import numpy as np

from skills.core.interface import SkillGoal
from skills.starts.dataset import DatasetStarts
from skills.starts.room import Draw, Room, free_cells, in_cell
from skills.starts.start import Start
from tpsrl.world.doors import joints_at
from tpsrl.world.episode import Episode
from tpsrl.world.floor import rounded

HELD_SHARE = 1 / 6  # of the starts: object in hand, its goal as the destination
FROM_M = 3.0  # minimum straight-line distance from the base on the floor to the goal


def draw(base: Episode, rng: np.random.Generator) -> Draw:
    """Draws starts far enough from the object, or with it in hand from its goal."""
    target = base.targets[0]
    holds = bool(rng.random() < HELD_SHARE)
    position = target.goal if holds else base.objects[target.object].pos
    base = dataclasses.replace(base, held=target.object if holds else -1)
    return towards(base, SkillGoal(-1 if holds else target.object, position), rng)


def towards(base: Episode, goal: SkillGoal, rng: np.random.Generator) -> Draw:
    """Draws starts far enough from `goal`, with the episode's held object."""
    assert goal.position is not None
    x, y, z = goal.position
    cells = free_cells(base.layout, rounded(joints_at(base.articulation)))
    room = Room(base, held=base.held)

    def attempt_at(attempt: int) -> Start | None:
        if not len(cells):
            return None
        spot = in_cell(cells[rng.integers(len(cells))], rng)
        if math.dist((*spot, 0.0), (x, y, z)) <= FROM_M:
            return None
        return room.start_at((*spot, float(rng.uniform(-math.pi, math.pi))), goal)

    return attempt_at


STARTS = DatasetStarts("rearrange_easy", draw, towards)
