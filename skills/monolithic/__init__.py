"""Monolithic, one policy for the whole rearrangement of an object.

Definition, start states and scripted version of Habitat 2.0's baseline without a planner. The skill
implements no single action of the planning domain; an agent uses it in place of all of them
(`planner.rewriting.by_one_skill`).
"""

from collections.abc import Sequence

from skills.core.interface import SkillGoal
from skills.core.limits import SkillLimits
from skills.monolithic.task import Monolithic, MonolithicThresholds
from skills.registry import register
from skills.spec import ProtocolValues, Referent, SkillSpec


def goal_of(things: Sequence[Referent]) -> SkillGoal:
    """Returns the goal of an action: its first argument is the object, its second the position."""
    return SkillGoal(things[0].object, things[1].position)


# Outside plans it has about the steps of the skills that it replaces: Navigate twice, Pick, Place.
_ALONE = SkillLimits(1000, 10_000.0, 100_000.0)
_NEAR = MonolithicThresholds(rest_m=0.05)

SPEC = register(
    SkillSpec(
        name="monolithic",
        definition=Monolithic(),
        starts="skills.monolithic.starts:STARTS",
        scripted="skills.monolithic.scripted:ScriptedMonolithic",
        goal_of=goal_of,
        seed=8,
        protocols={
            "habitat": ProtocolValues(MonolithicThresholds(), alone=_ALONE),
            "m3": ProtocolValues(_NEAR, alone=_ALONE),
            "mshab": ProtocolValues(_NEAR, alone=_ALONE),
        },
    )
)
