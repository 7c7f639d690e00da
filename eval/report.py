"""From the results of the episodes to `report.json`: rates with intervals, and first causes.

The report is a pure function of its header and the results, so that the same seed gives the same
report however many processes ran the episodes; times are kept elsewhere.
"""

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from eval.intervals import wilson
from eval.results import Cause, EpisodeResult


def summarise(header: dict[str, Any], results: Sequence[EpisodeResult]) -> dict[str, Any]:
    """The report of at least one episode, as JSON types.

    Keys beside the header's: `success`, `goals_met` (share of the scenario's goals that hold at the
    end), `stages`, `handoffs`, `propagation`, `first_causes`, `steps` and `force`. What needs
    skills run in isolation (`rate_isolated`, `tax` and its interval, `product_isolated`, `loss`)
    is None here: a chain alone cannot measure it.
    """
    stages = stage_rates(results)
    successes = [r.success for r in results]
    return {
        **header,
        "num_episodes": len(results),
        "success": dataclasses.asdict(wilson(sum(successes), len(successes))),
        "goals_met": sum(r.goals_met for r in results) / max(1, sum(r.goals for r in results)),
        "stages": stages,
        "handoffs": _handoffs(stages),
        "propagation": {
            "measured": sum(successes) / len(successes),
            "product_isolated": None,
            "product_conditional": _product(stages),
            "loss": None,
        },
        "first_causes": first_causes(results),
        "steps": _spread([r.steps for r in results]),
        "force": {
            "peak_n": _spread([r.force_peak_n for r in results]),
            "total_n": _spread([r.force_total_n for r in results]),
        },
    }


def stage_rates(results: Sequence[EpisodeResult]) -> list[dict[str, Any]]:
    """For each stage of the plan: how many episodes reached it, and how many of these did it.

    `rate` is succeeded / reached with its Wilson interval; `cumulative` is succeeded / all episodes.
    Stages that have the same index but other skills in other episodes are kept apart.
    """
    groups: dict[tuple[int, str, str], list[bool]] = defaultdict(list)
    for result in results:
        for index, stage in enumerate(result.stages):
            outcomes = groups[index, stage.name, stage.skill]
            if stage.reached:
                outcomes.append(stage.succeeded)
    rows = []
    for (index, name, skill), outcomes in sorted(groups.items()):
        rate = wilson(sum(outcomes), len(outcomes))
        row = {"index": index, "name": name, "skill": skill}
        row |= {"reached": len(outcomes), "succeeded": sum(outcomes), "rate": rate.mean}
        row |= {"ci_low": rate.ci_low, "ci_high": rate.ci_high}
        rows.append(row | {"cumulative": sum(outcomes) / len(results)})
    return rows


def first_causes(results: Sequence[EpisodeResult]) -> list[dict[str, Any]]:
    """Failures grouped by stage, predicate and end, the most frequent first.

    `margin` is the median over the group.
    """
    groups: dict[tuple[Any, ...], list[Cause]] = defaultdict(list)
    for cause in (r.first_cause for r in results if r.first_cause is not None):
        key = (cause.stage, cause.name, cause.skill, cause.predicate, cause.end, cause.unit)
        groups[key].append(cause)
    rows = []
    for (stage, name, skill, predicate, end, unit), causes in groups.items():
        margins = [c.margin for c in causes if c.margin is not None]
        margin = statistics.median(margins) if margins else None
        row = {"stage": stage, "name": name, "skill": skill, "predicate": predicate, "end": end}
        rows.append(row | {"margin": margin, "unit": unit, "count": len(causes)})
    return sorted(rows, key=lambda r: (-r["count"], r["stage"], r["predicate"], r["end"], r["unit"]))


def _handoffs(stages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each stage that follows another; the tax awaits skills run in isolation."""
    rows = []
    for before, after in zip(stages, stages[1:], strict=False):
        if after["index"] != before["index"] + 1:
            continue
        row = {"index": before["index"], "from": before["name"], "to": after["name"]}
        row |= {"n": after["reached"], "rate_after_handoff": after["rate"]}
        rows.append(row | dict.fromkeys(("rate_isolated", "tax", "ci_low", "ci_high")))
    return rows


def _product(stages: Sequence[dict[str, Any]]) -> float | None:
    """Product of the stages' rates; None unless all episodes share one sequence of stages."""
    if not stages or [stage["index"] for stage in stages] != list(range(len(stages))):
        return None
    product = 1.0
    for stage in stages:
        if product == 0.0 or stage["rate"] is None:
            return 0.0
        product *= stage["rate"]
    return product


def _spread(values: Sequence[float]) -> dict[str, float]:
    """Mean, median, 90th percentile (nearest rank) and largest of at least one value."""
    ordered = sorted(values)
    rank = -(-9 * len(ordered) // 10) - 1
    return {
        "mean": statistics.fmean(ordered),
        "median": statistics.median(ordered),
        "p90": ordered[rank],
        "max": ordered[-1],
    }
