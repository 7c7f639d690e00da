"""How shares, margins and causes read, on the page and on the terminal."""

import math
from collections.abc import Mapping
from typing import Protocol

from eval.analysing.results import generic
from eval.analysing.schema import LossPart, RepairRow, SkillReport
from planner.execution.trace import Cause

# Why a skill or an episode ended (`planner.execution.trace`, `skills.core.skill.FAILURES`).
REASONS = {
    "success": "success",
    "timeout": "ran out of steps",
    "skill_stop": "gave up",
    "skill_force": "force limit of the skill",
    "precondition": "could not start",
    "force_limit": "force limit of the episode",
    "episode_steps": "episode ran out of steps",
    "no_plan": "no plan left",
    "stop": "stopped",
    "lost": "lost again later",
    "knocked": "knocked about",
    "dropped": "dropped the object",
    "wrong_object": "took the wrong object",
    "wrong_drop": "let go in the wrong place",
    "wrong_grasp": "grasped the wrong thing",
    "stopped": "stopped in the wrong place",
    "hold_broken": "hold of the handle broke",
}

# What parts the measured success from the product of isolated rates.
LOSSES = {
    "selection": "selection of episodes",
    "tax": "handoff tax",
    "time": "episode out of steps",
    "lost": "lost again later",
    "made_good": "made good later",
}

# In what a handoff may be off the skill's own start states.
DIMENSIONS = {
    "distance": "distance to the target",
    "heading": "heading off the target",
    "arm_rest": "arm off its rest",
    "slip": "object slipped in the hand",
    "articulation": "door or drawer off its target",
    "view_blocked": "view blocked",
}

# What did not hold, by the predicate that says so, of its terms.
FACTS = {
    "holding": "{0} in the hand",
    "not_holding": "hand empty",
    "robot_at": "robot at {0}",
    "object_at": "{0} at {1}",
    "goal_of": "{0} the goal of {1}",
    "in": "{0} in {1}",
    "opened_cab": "{0} open",
    "closed_cab": "{0} closed",
    "opened_fridge": "{0} open",
    "closed_fridge": "{0} closed",
    "undisturbed": "{0} where it was",
}

# What has a marker on its handle.
PLACES = {
    "fridge_push_point": "fridge",
    "cab_push_point_4": "right bottom drawer",
    "cab_push_point_5": "right top drawer",
    "cab_push_point_6": "middle top drawer",
    "cab_push_point_7": "left top drawer",
}

REPAIRS = {
    "state": "State repaired: where the robot stands, its arm, and how it holds",
    "effect": "Effect repaired: what the step before was to bring about",
}

OTHERS = "all others"


class Bounded(Protocol):
    """A value with its interval."""

    @property
    def ci_low(self) -> float | None:
        """The lower end, None when it was not measured."""
        ...

    @property
    def ci_high(self) -> float | None:
        """The upper end."""
        ...


class Joining(Protocol):
    """Something from one skill to the next."""

    @property
    def from_(self) -> str:
        """The first skill."""
        ...

    @property
    def to(self) -> str:
        """The second skill."""
        ...


def changes(entries: Mapping[str, object]) -> str:
    """Entries that differ from a preset: "limits.episode_steps=2500"."""
    return ", ".join(f"{key}={value}" for key, value in entries.items())


def percent(value: float | None) -> str:
    """A share as a percentage, "-" when it was not measured."""
    return "-" if value is None else f"{100 * value:.1f}%"


def interval(row: Bounded | None) -> str:
    """The bounds of a share, "-" when it was not measured."""
    if row is None or row.ci_low is None or row.ci_high is None:
        return "-"
    return f"{percent(row.ci_low)} to {percent(row.ci_high)}"


def points(value: float | None) -> str:
    """A difference of shares in percentage points, "-" when it was not measured."""
    if value is None:
        return "-"
    text = f"{100 * value:+.1f}"
    return "0.0" if text in ("-0.0", "+0.0") else text.replace("-", "\N{MINUS SIGN}")


def points_interval(row: Bounded) -> str:
    """The bounds of a difference in percentage points, "-" when it was not measured."""
    return points_between(row.ci_low, row.ci_high)


def points_between(low: float | None, high: float | None) -> str:
    """The same of two bounds."""
    return "-" if low is None or high is None else f"{points(low)} to {points(high)}"


def probability(value: float | None) -> str:
    """A p-value, "-" when there is none."""
    if value is None:
        return "-"
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def signed(margin: float | None, unit: str) -> str:
    """A margin with its unit; yes-or-no facts have no size to show."""
    if margin is None or not math.isfinite(margin) or unit == "bool":
        return ""
    return f"{margin:+.3g} {unit}"


def driving(report: SkillReport) -> tuple[str, str, str] | None:
    """The mean of a path metric, of most skills SPL: its name, figure and interval.

    None for skills that do not drive somewhere. Reports of before have no interval, "" then.
    """
    path = report.path
    if not path:
        return None
    name = "spl" if "spl" in path else next(iter(path))
    ends = (report.path_intervals or {}).get(name)
    sure = f"{ends.ci_low:.2f} to {ends.ci_high:.2f}" if ends else ""
    return ("SPL" if name == "spl" else plain(name)), f"{path[name]:.2f}", sure


def plain(name: str) -> str:
    """An identifier as words: "open_fridge" -> "open fridge"."""
    return name.replace("_", " ")


def reason(name: str) -> str:
    """Why something ended; skills of somebody's own may have reasons that are not listed."""
    return REASONS.get(name, plain(name))


def fact(predicate: str) -> str:
    """What a predicate says: "holding(obj_4, robot_0)" -> "obj_4 in the hand".

    Of a skill by itself it is the name of a part of success. What is not known stays as it is.
    """
    name, bracket, rest = predicate.partition("(")
    if not bracket:
        return plain(predicate.replace(".", ": "))
    terms = [PLACES.get(term.strip(), term.strip()) for term in rest.removesuffix(")").split(",")]
    try:
        return FACTS[name].format(*terms)
    except LookupError:
        return predicate


def stage(name: str) -> str:
    """A step of a plan: "open_fridge fridge_push_point" -> "open fridge: fridge".

    Numbers before it and names of objects stay as they are.
    """
    action, _, about = name.rpartition(" ")
    place = PLACES.get(about)
    return f"{plain(action)}: {place}" if place else name


def numbered(index: int, name: str) -> str:
    """A step of a plan with its number: 0, "pick obj_0" -> "1  pick obj_0"; -1 is of none."""
    return stage(name) if index < 0 else f"{index + 1}  {stage(name)}"


def lacking(cause: Cause) -> str:
    """What a first cause lacks, without the names that differ between episodes."""
    return fact(generic(cause.predicate))


def figures(cause: Cause, text: str) -> str:
    """A cause with its figures, given its text in the files (`eval.analysing.causes`).

    "holding(obj_0, robot_0): not so at step 9" -> "obj_0 in the hand: not so at step 9"
    """
    predicate = generic(cause.predicate)
    known = text.startswith(f"{predicate}: ")
    return fact(predicate) + text[len(predicate) :] if known else text


def loss(kind: str) -> str:
    """A part of what propagation costs."""
    return LOSSES.get(kind, plain(kind))


def dimension(name: str) -> str:
    """In what a handoff is off."""
    return DIMENSIONS.get(name, plain(name))


def repair(kind: str) -> str:
    """A kind of repaired handoff."""
    return REPAIRS.get(kind, f"{plain(kind).capitalize()} repaired")


def link(row: Joining) -> str:
    """A handoff from skill to skill: "navigate -> open fridge"; "others" stands for the rest."""
    if row.from_ == row.to == "others":
        return OTHERS
    return f"{plain(row.from_)} -> {plain(row.to)}"


def repair_sentence(row: RepairRow) -> str:
    """What repairing one handoff brings: "Repairing navigate -> pick alone lifts ..."."""
    change = row.after - row.before
    verb = "lifts" if change > 0 else "lowers" if change < 0 else "leaves"
    before, after = f"{100 * row.before:.0f}%", f"{100 * row.after:.0f}%"
    then = f"at {before}" if change == 0 else f"from {before} to {after}"
    what = "all others together" if link(row) == OTHERS else f"{link(row)} alone"
    return f"Repairing {what} {verb} full success {then}."


def setback(row: LossPart) -> str:
    """A part of what propagation costs, with where: "handoff tax, nav obj_0 -> pick obj_0"."""
    where = steps(row)
    return f"{loss(row.kind)}, {where}" if where else loss(row.kind)


def steps(row: LossPart) -> str:
    """The handoff between two steps of a plan, or the skill of a first step; "" for neither."""
    if row.from_ and row.to:
        return f"{stage(row.from_)} -> {stage(row.to)}"
    return stage(row.to or plain(row.skill or ""))
