"""One policy that does all for an object: definition, start states, scripted version.

Habitat 2.0's baseline without a planner. It carries out no single action of the planning domain; an
agent has it in the place of all (`planner.rewriting.by_one_skill`).
"""

from collections.abc import Sequence

from skills.core.interface import SkillGoal
from skills.core.limits import SkillLimits
from skills.monolithic.task import Monolithic, MonolithicThresholds
from skills.registry import register
from skills.spec import ProtocolValues, Referent, SkillSpec


def goal_of(things: Sequence[Referent]) -> SkillGoal:
    """The object, and the position of the goal that is named after it."""
    return SkillGoal(things[0].object, things[1].position)


# By itself it has the time of the skills in whose stead it acts: twice Navigate, Pick, Place.
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
