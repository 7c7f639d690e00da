"""Timeouts of skills as defined by habitat-baselines.

A skill of this project may also give up, fail when the object falls, or not be run when it cannot
start. The skills of habitat-baselines (0.3.3, `rl/hrl/skills`) cannot: they act until the hand is
in the required state and the arm at rest, or until their steps are spent. Navigate ends by its stop
wherever it is, and Place as soon as the hand is empty and the arm at rest, wherever the object is.
"""

from planner.execution.trace import TIMEOUT, Stage
from planner.plan import PlanStep

# Conditions by which a skill of habitat-baselines ends. For each ending of a skill here, `_ASKED`
# has those of which a failure shows that habitat-baselines' skill would have continued.
_ENDS_BY = ("holding", "released", "rest")
_ASKED = {"skill_stop": _ENDS_BY, "wrong_grasp": _ENDS_BY, "dropped": ("holding",)}
_ALWAYS_END = ("robot_at", "object_at")  # purposes of steps that end even without any progress


def ran_out(step: PlanStep, stage: Stage, replans: bool) -> bool:
    """Returns whether the skill has spent its steps, or habitat-baselines' skill would have.

    With replanning (`replans`) a robot may give up a skill, so only the spent steps count.
    """
    if replans or stage.ended_by == TIMEOUT:
        return stage.ended_by == TIMEOUT
    if not stage.reached:
        return not step.purpose[0].startswith(_ALWAYS_END)
    conditions = _ASKED.get(stage.ended_by, ())
    return any(name in stage.results and not stage.results[name].holds for name in conditions)
