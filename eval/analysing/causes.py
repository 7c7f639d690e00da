"""First causes as text: the predicate, its value and limit, and the control step."""

import dataclasses
import re

from eval.analysing.results import generic
from planner.entities import Entities, short_name
from planner.execution.disturbance import MOVED_M
from planner.execution.trace import Cause, Trace
from planner.predicates import PredicateThresholds
from tpsrl.world.state import JOINTS


@dataclasses.dataclass(frozen=True, slots=True)
class _Limit:
    """Threshold of a predicate: it holds below the value, or above it."""

    value: float
    below: bool


def cause_text(cause: Cause, thresholds: PredicateThresholds) -> str:
    """Returns a cause as text: "robot_at(obj_0, robot_0): 2.31 m > 2 m at step 412"."""
    when, name = f"at step {cause.step}", generic(cause.predicate)
    predicate, _, terms = cause.predicate.partition("(")
    if predicate == "object_at" and terms.removesuffix(")").endswith(JOINTS):
        predicate = "in"  # a place in a drawer or the fridge has the margin of `in`
    limit = _limit(predicate, thresholds)
    if cause.unit == "bool":
        return f"{name}: not so {when}"
    if limit is None:
        return f"{name}: {-cause.margin:.2f} {cause.unit} beyond its limit {when}"
    value = limit.value + (-cause.margin if limit.below else cause.margin)
    sign = ">" if limit.below else "<"
    return f"{name}: {value:.2f} {cause.unit} {sign} {limit.value:g} {cause.unit} {when}"


def objects_text(cause: Cause, trace: Trace) -> str:
    """Returns which objects a cause is about: "; obj_0 is the pitcher; picked the bowl instead"."""
    objects = [entity.name for entity in Entities(trace.episode).objects]
    words = re.findall(r"\w+", f"{cause.predicate} {cause.name}")
    about = [name for name in objects if name in words or short_name(name) in words]
    text = "".join(f"; {generic(name)} is the {_common(name)}" for name in about)
    if (held := _held_after(cause, trace)) >= 0 and objects[held] not in about:
        picked = _common(objects[held])
        same = picked in map(_common, about)
        text += f"; picked {'another' if same else 'the'} {picked} instead"
    return text


def _held_after(cause: Cause, trace: Trace) -> int:
    """Returns the object in the hand after the step that picked a wrong one, -1 for none."""
    for stage in trace.stages:
        if (stage.index, stage.ended_by) == (cause.stage, "wrong_object"):
            return -1 if stage.after is None else stage.after.held
    return -1


def _common(entity: str) -> str:
    """Returns the object's common name: "obj_0_007_tuna_fish_can" -> "tuna fish can"."""
    ycb = entity.removeprefix(short_name(entity)).strip("_")
    return re.sub(r"^\d+_", "", ycb).replace("_", " ")


def _limit(predicate: str, thresholds: PredicateThresholds) -> _Limit | None:
    known = {
        "robot_at": _Limit(thresholds.robot_at_m, True),
        "object_at": _Limit(thresholds.object_at_m, True),
        "opened_cab": _Limit(thresholds.opened_cab_m, False),
        "closed_cab": _Limit(thresholds.closed_cab_m, True),
        "opened_fridge": _Limit(thresholds.opened_fridge_rad, False),
        "closed_fridge": _Limit(thresholds.closed_fridge_rad, True),
        "in": _Limit(0.0, False),
        "undisturbed": _Limit(MOVED_M, True),
    }
    return known.get(predicate)
