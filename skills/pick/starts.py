"""Pick's starts: near the object, facing it but for noise, the hand empty."""

import numpy as np

from skills.core.interface import SkillGoal
from skills.starts.dataset import DatasetStarts
from skills.starts.room import Draw, near
from tpsrl.world.episode import Episode


def draw(base: Episode, rng: np.random.Generator) -> Draw:
    target = base.targets[0]
    pos = base.objects[target.object].pos
    return near(base, rng, pos, SkillGoal(target.object), held=-1)


STARTS = DatasetStarts("rearrange_easy", draw)
