"""Texts for shares, margins and causes, on pages and in the terminal."""

import math
import shlex
from collections.abc import Mapping
from typing import Protocol

from eval.analysing.results import generic
from eval.analysing.schema import LossPart, RepairRow, SkillReport
from planner.execution.trace import Cause

# Reasons why a skill or episode ended (`planner.execution.trace`, `skills.core.skill.FAILURES`).
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
    "knocked": "displaced by accident",
    "dropped": "dropped the object",
    "wrong_object": "picked the wrong object",
    "wrong_drop": "released in the wrong place",
    "wrong_grasp": "grasped something else",
    "stopped": "stopped in the wrong place",
    "hold_broken": "lost hold of the handle",
}

# Parts of the loss between the product of isolated rates and measured success.
LOSSES = {
    "selection": "selection of episodes",
    "tax": "handoff tax",
    "time": "episode out of steps",
    "lost": "lost again later",
    "made_good": "recovered later",
}

# Error dimensions of handoffs.
DIMENSIONS = {
    "distance": "distance to the target",
    "heading": "heading away from the target",
    "arm_rest": "arm away from its rest posture",
    "slip": "object slipped in the hand",
    "articulation": "distance of door or drawer from its target",
    "view_blocked": "view blocked",
}

# Texts of predicates, with their terms as {0} and {1}.
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
    "undisturbed": "{0} undisturbed",
}

# Furniture by the marker of its handle.
PLACES = {
    "fridge_push_point": "fridge",
    "cab_push_point_4": "right bottom drawer",
    "cab_push_point_5": "right top drawer",
    "cab_push_point_6": "middle top drawer",
    "cab_push_point_7": "left top drawer",
}

REPAIRS = {
    "state": "State repaired: base pose, arm posture and grasp",
    "effect": "Effect repaired: missing effects of the step before",
}

OTHERS = "all others"


class Bounded(Protocol):
    """A value with an interval."""

    @property
    def ci_low(self) -> float | None:
        """Lower bound, None if it was not measured."""
        ...

    @property
    def ci_high(self) -> float | None:
        """Upper bound, None if it was not measured."""
        ...


class Joining(Protocol):
    """A row about the handoff between two skills."""

    @property
    def from_(self) -> str:
        """First skill."""
        ...

    @property
    def to(self) -> str:
        """Second skill."""
        ...


def changes(entries: Mapping[str, object]) -> str:
    """Returns entries that differ from a preset as text: "limits.episode_steps=2500"."""
    return ", ".join(f"{key}={value}" for key, value in entries.items())


def percent(value: float | None) -> str:
    """Returns a share as a percentage, "-" if it was not measured."""
    return "-" if value is None else f"{100 * value:.1f}%"


def interval(row: Bounded | None) -> str:
    """Returns the bounds of a share, "-" if they were not measured."""
    if row is None or row.ci_low is None or row.ci_high is None:
        return "-"
    return f"{percent(row.ci_low)} to {percent(row.ci_high)}"


def points(value: float | None) -> str:
    """Returns a difference of shares in percentage points, "-" if it was not measured."""
    if value is None:
        return "-"
    text = f"{100 * value:+.1f}"
    return "0.0" if text in ("-0.0", "+0.0") else text.replace("-", "\N{MINUS SIGN}")


def points_interval(row: Bounded) -> str:
    """Returns the bounds of a difference in percentage points, "-" if not measured."""
    return points_between(row.ci_low, row.ci_high)


def points_between(low: float | None, high: float | None) -> str:
    """Returns two bounds in percentage points, "-" if they were not measured."""
    return "-" if low is None or high is None else f"{points(low)} to {points(high)}"


def probability(value: float | None) -> str:
    """Returns a p-value as text, "-" if there is none."""
    if value is None:
        return "-"
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def signed(margin: float | None, unit: str) -> str:
    """Returns a margin with its unit; "" if it is of a yes-or-no condition or not finite."""
    if margin is None or not math.isfinite(margin) or unit == "bool":
        return ""
    return f"{margin:+.3g} {unit}"


def driving(report: SkillReport) -> tuple[str, str, str] | None:
    """Returns name, mean and interval of a path metric, SPL for most skills.

    None for skills that do not drive to a place. Reports of earlier versions have no interval; it
    is "" then.
    """
    path = report.path
    if not path:
        return None
    name = "spl" if "spl" in path else next(iter(path))
    ends = (report.path_intervals or {}).get(name)
    sure = f"{ends.ci_low:.2f} to {ends.ci_high:.2f}" if ends else ""
    return ("SPL" if name == "spl" else plain(name)), f"{path[name]:.2f}", sure


def plain(name: str) -> str:
    """Returns an identifier as words: "open_fridge" -> "open fridge"."""
    return name.replace("_", " ")


def reason(name: str) -> str:
    """Returns the reason of an end as text; skills of users may have reasons not listed here."""
    return REASONS.get(name, plain(name))


def fact(predicate: str) -> str:
    """Returns a predicate as text: "holding(obj_4, robot_0)" -> "obj_4 in the hand".

    For a skill in isolation it is the name of a condition of success. Unknown predicates are
    unchanged.
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
    """Returns a step of a plan as text: "open_fridge fridge_push_point" -> "open fridge: fridge".

    Leading numbers and names of objects are unchanged.
    """
    action, _, about = name.rpartition(" ")
    place = PLACES.get(about)
    return f"{plain(action)}: {place}" if place else name


def numbered(index: int, name: str) -> str:
    """Returns a plan's step with its number: 0, "pick obj_0" -> "1  pick obj_0"; -1: without."""
    return stage(name) if index < 0 else f"{index + 1}  {stage(name)}"


def lacking(cause: Cause) -> str:
    """Returns the missing predicate of a first cause, without names that differ by episode."""
    return fact(generic(cause.predicate))


def figures(cause: Cause, text: str) -> str:
    """Returns a cause with its figures, from its text in the files (`eval.analysing.causes`).

    "holding(obj_0, robot_0): not so at step 9" -> "obj_0 in the hand: not so at step 9"
    """
    predicate = generic(cause.predicate)
    known = text.startswith(f"{predicate}: ")
    return fact(predicate) + text[len(predicate) :] if known else text


def replay(command: str, episode: str) -> str:
    """Returns the shell command that films one episode of an evaluation.

    Its files are in a folder of their own, so that the evaluation's are kept.
    """
    several = ("num_episodes=", "episode=", "analysis_")
    kept = [word for word in shlex.split(command) if not word.startswith(several)]
    kept[:2] = ["tpsrl", "video"]
    return shlex.join([*kept, f"episode={episode}"])


def loss(kind: str) -> str:
    """Returns the name of a part of the loss."""
    return LOSSES.get(kind, plain(kind))


def dimension(name: str) -> str:
    """Returns the name of an error dimension of handoffs."""
    return DIMENSIONS.get(name, plain(name))


def repair(kind: str) -> str:
    """Returns the name of a kind of repair."""
    return REPAIRS.get(kind, f"{plain(kind).capitalize()} repaired")


def link(row: Joining) -> str:
    """Returns a handoff between skills: "navigate -> open fridge"; "others" stands for the rest."""
    if row.from_ == row.to == "others":
        return OTHERS
    return f"{plain(row.from_)} -> {plain(row.to)}"


def repair_sentence(row: RepairRow) -> str:
    """Returns the gain of a repair: "Repairing navigate -> pick alone lifts ..."."""
    change = row.after - row.before
    verb = "lifts" if change > 0 else "lowers" if change < 0 else "leaves"
    before, after = f"{100 * row.before:.0f}%", f"{100 * row.after:.0f}%"
    then = f"at {before}" if change == 0 else f"from {before} to {after}"
    what = "all others together" if link(row) == OTHERS else f"{link(row)} alone"
    return f"Repairing {what} {verb} full success {then}."


def setback(row: LossPart) -> str:
    """Returns a part of the loss with its place: "handoff tax, nav obj_0 -> pick obj_0"."""
    where = steps(row)
    return f"{loss(row.kind)}, {where}" if where else loss(row.kind)


def steps(row: LossPart) -> str:
    """Returns the handoff of a row, or the skill of a first step; "" if it has neither."""
    if row.from_ and row.to:
        return f"{stage(row.from_)} -> {stage(row.to)}"
    return stage(row.to or plain(row.skill or ""))
