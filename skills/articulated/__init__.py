"""Open and close the fridge and the drawers: definitions, start states, scripted versions."""

from collections.abc import Sequence

from skills.articulated.task import (
    ArticulatedLimits,
    Close,
    CloseThresholds,
    Open,
    OpenThresholds,
)
from skills.core.interface import SkillGoal
from skills.registry import register
from skills.spec import ProtocolValues, Referent, SkillSpec


def goal_of(things: Sequence[Referent]) -> SkillGoal:
    """Returns the goal of an action: the handle that it names."""
    return SkillGoal(marker=things[0].marker)


_IN_PLAN = ArticulatedLimits(200, broken_hold="goes_on")
_SUMMED_10_KN = ArticulatedLimits(200, force_total_n=10_000.0, broken_hold="goes_on")
_SCRIPTED_OPEN = "skills.articulated.scripted:ScriptedOpen"
_SCRIPTED_CLOSE = "skills.articulated.scripted:ScriptedClose"


def _closing(habitat_alone: ArticulatedLimits) -> dict[str, ProtocolValues]:
    """Returns thresholds and limits by protocol; MS-HAB's tolerance is a fraction of the range."""
    return {
        "habitat": ProtocolValues(CloseThresholds(), _IN_PLAN, habitat_alone),
        "m3": ProtocolValues(CloseThresholds(), _IN_PLAN, _IN_PLAN),
        "mshab": ProtocolValues(
            CloseThresholds(tolerance=0.01, rest_m=0.05), _SUMMED_10_KN, _SUMMED_10_KN
        ),
    }


def _opening(target: float, mshab: float, alone: ArticulatedLimits) -> dict[str, ProtocolValues]:
    """Returns thresholds and limits by protocol; MS-HAB's target (`mshab`) has no tolerance."""
    return {
        "habitat": ProtocolValues(OpenThresholds(target), _IN_PLAN, alone),
        "m3": ProtocolValues(OpenThresholds(target), _IN_PLAN, _IN_PLAN),
        "mshab": ProtocolValues(
            OpenThresholds(mshab, tolerance=0.0, rest_m=0.05), _SUMMED_10_KN, _SUMMED_10_KN
        ),
    }


OPEN_FRIDGE = register(
    SkillSpec(
        name="open_fridge",
        definition=Open("rad"),
        starts="skills.articulated.starts:OPEN_FRIDGE",
        scripted=_SCRIPTED_OPEN,
        demonstrator="skills.articulated.servo:ServoOpen",
        teacher="open_fridge.teacher.safetensors",
        actions=("open_fridge", "open_fridge_by_name"),
        goal_of=goal_of,
        seed=3,
        # MS-HAB: 0.75 of the joint's 2.3 rad.
        protocols=_opening(1.2208, 1.725, ArticulatedLimits(200, 10_000.0, 20_000.0)),
    )
)
CLOSE_FRIDGE = register(
    SkillSpec(
        name="close_fridge",
        definition=Close("rad"),
        starts="skills.articulated.starts:CLOSE_FRIDGE",
        scripted=_SCRIPTED_CLOSE,
        demonstrator="skills.articulated.servo:ServoClose",
        teacher="close_fridge.teacher.safetensors",
        actions=("close_fridge", "close_fridge_by_name"),
        goal_of=goal_of,
        seed=4,
        protocols=_closing(ArticulatedLimits(200)),
    )
)
OPEN_DRAWER = register(
    SkillSpec(
        name="open_drawer",
        definition=Open("m"),
        starts="skills.articulated.starts:OPEN_DRAWER",
        scripted=_SCRIPTED_OPEN,
        demonstrator="skills.articulated.servo:ServoOpen",
        teacher="open_drawer.teacher.safetensors",
        actions=("open_cab", "open_cab_by_name"),
        goal_of=goal_of,
        seed=5,
        # MS-HAB: 0.9 of the joint's 0.49 m.
        protocols=_opening(0.45, 0.441, ArticulatedLimits(200, 10_000.0)),
    )
)
CLOSE_DRAWER = register(
    SkillSpec(
        name="close_drawer",
        definition=Close("m"),
        starts="skills.articulated.starts:CLOSE_DRAWER",
        scripted=_SCRIPTED_CLOSE,
        demonstrator="skills.articulated.scripted:UsualClose",
        teacher="close_drawer.teacher.safetensors",
        actions=("close_cab", "close_cab_by_name"),
        goal_of=goal_of,
        seed=6,
        protocols=_closing(ArticulatedLimits(200)),
    )
)
