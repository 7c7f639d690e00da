"""Pick: definition, start states, scripted version."""

from collections.abc import Sequence

from skills.core.interface import SkillGoal
from skills.core.limits import SkillLimits
from skills.pick.task import Pick, PickThresholds
from skills.registry import register
from skills.spec import ProtocolValues, Referent, SkillSpec


def goal_of(things: Sequence[Referent]) -> SkillGoal:
    """Returns the goal of an action: the object to pick, its first argument."""
    return SkillGoal(things[0].object)


_SUMMED_5_KN = SkillLimits(200, force_total_n=5_000.0)

SPEC = register(
    SkillSpec(
        name="pick",
        definition=Pick(),
        starts="skills.pick.starts:STARTS",
        scripted="skills.pick.scripted:ScriptedPick",
        demonstrator="skills.pick.servo:ServoPick",
        teacher="pick.teacher.safetensors",
        actions=("pick",),
        goal_of=goal_of,
        seed=1,
        protocols={
            "habitat": ProtocolValues(
                PickThresholds(), SkillLimits(200), alone=SkillLimits(300, 10_000.0, 10_000.0)
            ),
            "m3": ProtocolValues(PickThresholds(rest_m=0.05), _SUMMED_5_KN, _SUMMED_5_KN),
            "mshab": ProtocolValues(
                PickThresholds(rest_m=0.05, arm_rad=0.6, still=0.2), _SUMMED_5_KN, _SUMMED_5_KN
            ),
        },
    )
)
