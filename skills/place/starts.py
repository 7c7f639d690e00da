"""Start states of Place: near the goal, facing it with noise, with the object in hand."""

import dataclasses

import numpy as np

from skills.core.interface import SkillGoal
from skills.starts.dataset import DatasetStarts
from skills.starts.room import SPAWN_M, Draw, hanging, near
from tpsrl.world.episode import Episode
from tpsrl.world.objects import object_kind


def draw(base: Episode, rng: np.random.Generator, within: float = SPAWN_M) -> Draw:
    target = base.targets[0]
    return towards(base, SkillGoal(target.object, target.goal), rng, within)


def towards(
    base: Episode, goal: SkillGoal, rng: np.random.Generator, within: float = SPAWN_M
) -> Draw:
    assert goal.position is not None
    kind = object_kind(base.objects[goal.object].name)
    known = dataclasses.replace(goal, grasp=hanging(kind))
    return near(base, rng, goal.position, known, held=goal.object, within=within)


STARTS = DatasetStarts("rearrange_easy", draw, towards, draw)
