"""Start states of Pick: near the object, facing it with noise, with an empty hand."""

import numpy as np

from skills.core.interface import SkillGoal
from skills.starts.dataset import DatasetStarts
from skills.starts.room import SPAWN_M, Draw, near
from tpsrl.world.episode import Episode


def draw(base: Episode, rng: np.random.Generator, within: float = SPAWN_M) -> Draw:
    return towards(base, SkillGoal(base.targets[0].object), rng, within)


def towards(
    base: Episode, goal: SkillGoal, rng: np.random.Generator, within: float = SPAWN_M
) -> Draw:
    return near(base, rng, base.objects[goal.object].pos, goal, held=-1, within=within)


STARTS = DatasetStarts("rearrange_easy", draw, towards, draw)
