"""Start states of Monolithic: anywhere on the free floor, with an empty hand."""

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


def draw(base: Episode, rng: np.random.Generator) -> Draw:
    target = base.targets[0]
    return towards(base, SkillGoal(target.object, target.goal), rng)


def towards(base: Episode, goal: SkillGoal, rng: np.random.Generator) -> Draw:
    base = dataclasses.replace(base, held=-1)
    cells = free_cells(base.layout, rounded(joints_at(base.articulation)))
    room = Room(base)

    def attempt_at(attempt: int) -> Start | None:
        if not len(cells):
            return None
        spot = in_cell(cells[rng.integers(len(cells))], rng)
        return room.start_at((*spot, float(rng.uniform(-math.pi, math.pi))), goal)

    return attempt_at


STARTS = DatasetStarts("rearrange_easy", draw, towards)
