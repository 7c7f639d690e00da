"""Navigate: definition, start states, scripted version."""

from collections.abc import Sequence

from skills.core.interface import SkillGoal
from skills.core.limits import SkillLimits
from skills.navigate.task import Navigate, NavigateThresholds
from skills.registry import register
from skills.spec import ProtocolValues, Referent, SkillSpec


def goal_of(things: Sequence[Referent]) -> SkillGoal:
    """Returns the goal of an action: position, and object or handle, of its first argument."""
    first = things[0]
    return SkillGoal(first.object if first.kind == "object" else -1, first.position, first.marker)


SPEC = register(
    SkillSpec(
        name="navigate",
        definition=Navigate(),
        starts="skills.navigate.starts:STARTS",
        scripted="skills.navigate.scripted:ScriptedNavigate",
        demonstrator="skills.navigate.servo:ServoNavigate",
        teacher="navigate.teacher.safetensors",
        actions=("nav", "nav_to_receptacle", "nav_to_receptacle_by_name"),
        goal_of=goal_of,
        seed=0,
        protocols={
            "habitat": ProtocolValues(
                NavigateThresholds(),
                limits=SkillLimits(300),
                alone=SkillLimits(400, 10_000.0, 10_000.0),
            ),
            "m3": ProtocolValues(
                # All free floor within the region counts as the goal.
                NavigateThresholds(distance_m=0.1, angle_rad=0.25, region_m=0.95),
                limits=SkillLimits(500),
                alone=SkillLimits(500),
            ),
            "mshab": ProtocolValues(
                NavigateThresholds(distance_m=2.0, angle_rad=0.5),
                limits=SkillLimits(1000),
                alone=SkillLimits(500),
            ),
        },
    )
)
