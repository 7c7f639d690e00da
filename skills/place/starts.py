"""Place's starts: near the goal, facing it but for noise, the object in hand."""

import numpy as np

from skills.core.interface import SkillGoal
from skills.starts.dataset import DatasetStarts
from skills.starts.room import Draw, near
from tpsrl.world.episode import Episode


def draw(base: Episode, rng: np.random.Generator) -> Draw:
    target = base.targets[0]
    return towards(base, SkillGoal(target.object, target.goal), rng)


def towards(base: Episode, goal: SkillGoal, rng: np.random.Generator) -> Draw:
    assert goal.position is not None
    return near(base, rng, goal.position, goal, held=goal.object)


STARTS = DatasetStarts("rearrange_easy", draw, towards)
