"""From the results of the episodes to `report.json`: rates with intervals, and first causes.

The report is a pure function of its header and the results, so that the same seed gives the same
report however many processes ran the episodes; times are kept elsewhere.
"""

import dataclasses
import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Protocol

from eval.analysing import extras, interactions
from eval.analysing.intervals import wilson
from eval.analysing.results import EpisodeResult, StageResult, generic
from planner.execution.trace import Cause


class HasCause(Protocol):
    """A result that says what went wrong first, if anything did."""

    @property
    def first_cause(self) -> Cause | None:
        """The cause, None on success."""
        ...


class HasStages(Protocol):
    """A result that says how each stage of its plan ended."""

    @property
    def stages(self) -> tuple[StageResult, ...]:
        """In the order of the first plan."""
        ...


def summarise(header: dict[str, Any], results: Sequence[EpisodeResult]) -> dict[str, Any]:
    """The report of at least one episode, as JSON types.

    Keys beside the header's: `success`, `goals_met` (share of the objects that are at their goals
    at the end), `timeouts`, `stages`, `stage_goals`, `handoffs`, `propagation`, `first_causes`,
    `steps`, `force`, `interactions` and `travelled_m` (see `eval.analysing.interactions`),
    `clutter_moved` and `view_blocked` (see `eval.analysing.extras`). What needs
    skills run in isolation (`rate_isolated`, `tax` and its interval, `product_isolated`, `loss`) is
    None here: a chain alone cannot measure it.
    """
    stages, links = stage_rates(results), handoffs(results)
    successes = [r.success for r in results]
    return {
        **header,
        "num_episodes": len(results),
        "success": dataclasses.asdict(wilson(sum(successes), len(successes))),
        "goals_met": sum(r.goals_met for r in results) / max(1, sum(r.goals for r in results)),
        "timeouts": extras.timeouts(header, results),
        "stages": stages,
        "stage_goals": goal_rates(results),
        "handoffs": links,
        "propagation": {
            "measured": sum(successes) / len(successes),
            "product_isolated": None,
            "product_conditional": _product(stages, links),
            "loss": None,
        },
        "first_causes": first_causes(results),
        "steps": spread([r.steps for r in results]),
        "force": {
            "peak_n": spread([r.force_peak_n for r in results]),
            "total_n": spread([r.force_total_n for r in results]),
        },
        "interactions": interactions.of_objects(results),
        "travelled_m": interactions.travelled_m(results),
        "clutter_moved": extras.clutter_moved(results),
        "view_blocked": extras.view_blocked([r.view_blocked for r in results]),
    }


def stage_rates(results: Sequence[HasStages]) -> list[dict[str, Any]]:
    """For each stage of the plan: how many episodes ran it, and how many of these did it.

    `rate` is succeeded / reached with its Wilson interval, by the plan's predicates. `skill_rate`
    is the same for `skill_succeeded`, which counts by the skill's own thresholds. The two need not
    agree (an object 0.2 m off its goal is placed for HAB's plan, and not for its skill):
    `only_predicates` and `only_skill` count the runs that succeeded by one of them alone.
    `cumulative` is the share of all episodes in which this stage and every one before it handed
    over: a stage whose timeout ends the episode may have succeeded and has not.
    Stages of one index but with different names in different episodes are kept apart.
    """
    groups: dict[tuple[int, str, str], list[tuple[StageResult, bool]]] = defaultdict(list)
    for result in results:
        whole = True
        for index, stage in enumerate(result.stages):
            whole = whole and stage.passed
            groups[index, stage.name, stage.skill].append((stage, whole))
    rows = []
    for (index, name, skill), outcomes in sorted(groups.items()):
        reached = [o for o, _ in outcomes if o.reached]
        succeeded = sum(o.succeeded for o in reached)
        rate = wilson(succeeded, len(reached))
        row: dict[str, Any] = {"index": index, "name": name, "skill": skill}
        row |= {"reached": len(reached), "succeeded": succeeded, "rate": rate.mean}
        row |= {"ci_low": rate.ci_low, "ci_high": rate.ci_high}
        row["cumulative"] = sum(whole for _, whole in outcomes) / len(results)
        row["skill_succeeded"] = sum(o.skill_success for o in reached)
        skill_rate = wilson(row["skill_succeeded"], len(reached))
        row |= {"skill_rate": skill_rate.mean}
        row |= {"skill_ci_low": skill_rate.ci_low, "skill_ci_high": skill_rate.ci_high}
        row["only_predicates"] = sum(o.succeeded and not o.skill_success for o in reached)
        row["only_skill"] = sum(o.skill_success and not o.succeeded for o in reached)
        rows.append(row)
    return rows


def goal_rates(results: Sequence[EpisodeResult]) -> list[dict[str, Any]]:
    """For each named stage goal, in the order of the plan: in how many episodes it was reached.

    `episodes` are those whose plan has the goal; `rate` is reached / episodes, with its interval.
    """
    groups: dict[str, list[bool]] = defaultdict(list)
    for result in results:
        for name, reached in result.stage_goals.items():
            groups[name].append(reached)
    rows = []
    for name, outcomes in groups.items():
        rate = wilson(sum(outcomes), len(outcomes))
        row = {"name": name, "episodes": len(outcomes), "reached": sum(outcomes)}
        rows.append(row | {"rate": rate.mean, "ci_low": rate.ci_low, "ci_high": rate.ci_high})
    return rows


def handoffs(results: Sequence[EpisodeResult]) -> list[dict[str, Any]]:
    """For each pair of consecutive stages: how the second fared where the first had succeeded.

    `n` counts the episodes in which it had and the second one was run. The interval belongs to the
    tax, so it is None with it.
    """
    groups: dict[tuple[int, str, str], list[bool]] = defaultdict(list)
    for result in results:
        for index, (first, second) in enumerate(itertools.pairwise(result.stages)):
            group = groups[index, first.name, second.name]
            if first.succeeded and second.reached:
                group.append(second.succeeded)
    rows = []
    for (index, before, after), outcomes in sorted(groups.items()):
        row: dict[str, Any] = {"index": index, "from": before, "to": after, "n": len(outcomes)}
        row["rate_after_handoff"] = wilson(sum(outcomes), len(outcomes)).mean
        rows.append(row | dict.fromkeys(("rate_isolated", "tax", "ci_low", "ci_high")))
    return rows


def first_causes(results: Sequence[HasCause]) -> list[dict[str, Any]]:
    """Failures grouped by stage, predicate and reason, the most frequent first.

    `margin` is the median over the group.
    """
    groups: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for cause in (r.first_cause for r in results if r.first_cause is not None):
        kind = (cause.stage, cause.name, cause.skill, generic(cause.predicate))
        groups[*kind, cause.reason, cause.unit].append(cause.margin)
    rows = []
    for (stage, name, skill, predicate, reason, unit), margins in groups.items():
        finite = [margin for margin in margins if math.isfinite(margin)]
        row = {"stage": stage, "name": name, "skill": skill, "predicate": predicate}
        row |= {"reason": reason, "margin": statistics.median(finite) if finite else None}
        rows.append(row | {"unit": unit, "count": len(margins)})
    order = ("stage", "predicate", "reason", "unit")
    return sorted(rows, key=lambda row: (-row["count"], *(row[key] for key in order)))


def _product(stages: Sequence[dict[str, Any]], links: Sequence[dict[str, Any]]) -> float | None:
    """The first stage's rate times those after each handoff.

    0 from the first factor that is 0; None where a factor was never measured, and unless all
    episodes share one sequence of stages.
    """
    if [stage["index"] for stage in stages] != list(range(len(stages))):
        return None
    product = 1.0
    rates = [stage["rate"] for stage in stages[:1]] + [link["rate_after_handoff"] for link in links]
    for rate in rates:
        if rate is None or rate == 0.0:
            return rate
        product *= rate
    return product


def spread(values: Sequence[float]) -> dict[str, float]:
    """Mean, median, 90th percentile (nearest rank) and largest of at least one value."""
    ordered = sorted(values)
    rank = -(-9 * len(ordered) // 10) - 1
    return {
        "mean": statistics.fmean(ordered),
        "median": statistics.median(ordered),
        "p90": ordered[rank],
        "max": ordered[-1],
    }
