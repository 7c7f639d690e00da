"""Place: definition, start states, scripted version."""

from collections.abc import Sequence

from skills.core.interface import SkillGoal
from skills.place.task import Place, PlaceLimits, PlaceThresholds
from skills.registry import register
from skills.spec import ProtocolValues, Referent, SkillSpec


def goal_of(things: Sequence[Referent]) -> SkillGoal:
    """Returns the goal of an action: its first argument is the object, its second the position."""
    return SkillGoal(things[0].object, things[1].position)


_SUMMED_7_5_KN = PlaceLimits(200, force_total_n=7_500.0)
_SUMMED_7_5_KN_IN_PLAN = PlaceLimits(200, force_total_n=7_500.0, wrong_drop="rest")

SPEC = register(
    SkillSpec(
        name="place",
        definition=Place(),
        starts="skills.place.starts:STARTS",
        scripted="skills.place.scripted:ScriptedPlace",
        demonstrator="skills.place.servo:ServoPlace",
        teacher="place.teacher.safetensors",
        actions=("place",),
        goal_of=goal_of,
        seed=2,
        protocols={
            "habitat": ProtocolValues(
                PlaceThresholds(),
                limits=PlaceLimits(200, wrong_drop="rest"),
                alone=PlaceLimits(300, 10_000.0, 10_000.0),
            ),
            "m3": ProtocolValues(
                PlaceThresholds(rest_m=0.05), _SUMMED_7_5_KN_IN_PLAN, _SUMMED_7_5_KN
            ),
            "mshab": ProtocolValues(
                PlaceThresholds(rest_m=0.05), _SUMMED_7_5_KN_IN_PLAN, _SUMMED_7_5_KN
            ),
        },
    )
)
