"""Which skills have run out of steps, by habitat-baselines' way of ending skills.

A skill here may also give up, fail when the object falls, or not be run when it cannot start.
habitat-baselines' skills know none of that (0.3.3, `rl/hrl/skills`): they act until the hand is as
it has to be and the arm at rest, or until their steps are spent. Navigate ends by its stop wherever
it is, and Place as soon as the hand is empty and the arm at rest, wherever the object is.
"""

from planner.execution.trace import TIMEOUT, Stage
from planner.plan import PlanStep

# The parts of success by which a skill of habitat-baselines ends, and what shows that it would not
# have ended when the skill here did.
_ENDS_BY = ("holding", "released", "rest")
_ASKED = {"skill_stop": _ENDS_BY, "wrong_grasp": _ENDS_BY, "dropped": ("holding",)}
_ALWAYS_END = ("robot_at", "object_at")  # what the steps are for that end though nothing is done


def ran_out(step: PlanStep, stage: Stage, replans: bool) -> bool:
    """Whether the skill has spent its steps, or habitat-baselines' would have.

    A robot that `replans` may give a skill up: then only the steps themselves count.
    """
    if replans or stage.ended_by == TIMEOUT:
        return stage.ended_by == TIMEOUT
    if not stage.reached:
        return not step.purpose[0].startswith(_ALWAYS_END)
    asked = _ASKED.get(stage.ended_by, ())
    return any(name in stage.results and not stage.results[name].holds for name in asked)
