"""Report of a scenario from the results of its episodes: rates with intervals, first causes.

The report is a pure function of its header and the results, so that the same seed gives the same
report with any number of processes. Durations are in another file.
"""

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import structs

from eval.analysing import extras, interactions
from eval.analysing.intervals import wilson
from eval.analysing.results import EpisodeResult, StageResult, generic
from eval.analysing.schema import (
    CauseRow,
    Forces,
    GoalRow,
    HandoffRow,
    Propagation,
    Report,
    ScenarioRan,
    Spread,
    StageRow,
)
from planner.execution.trace import Cause


class HasCause(Protocol):
    """A result with a first cause of failure."""

    @property
    def first_cause(self) -> Cause | None:
        """First cause, None on success."""
        ...


class HasForces(Protocol):
    """A result with forces in newtons."""

    @property
    def force_peak_n(self) -> float:
        """Largest force of a control step."""
        ...

    @property
    def force_total_n(self) -> float:
        """Sum over control steps."""
        ...


class HasStages(Protocol):
    """A result with the outcome of each stage of its plan."""

    @property
    def stages(self) -> tuple[StageResult, ...]:
        """Stages in the order of the first plan."""
        ...


def summarise(header: ScenarioRan, results: Sequence[EpisodeResult]) -> Report:
    """Returns the report of at least one episode.

    Entries that require skills run in isolation (`rate_isolated`, `tax` and its interval,
    `product_isolated`, `loss`) are None here: a chain alone cannot measure them.
    """
    stages, links = stage_rates(results), handoffs(results)
    successes = [r.success for r in results]
    return Report(
        **structs.asdict(header),
        num_episodes=len(results),
        success=wilson(sum(successes), len(successes)),
        solved_at_start=extras.solved_at_start(results),
        goals_met=sum(r.goals_met for r in results) / max(1, sum(r.goals for r in results)),
        timeouts=extras.timeouts(header, results),
        stages=stages,
        stage_goals=goal_rates(results),
        handoffs=links,
        propagation=Propagation(
            measured=sum(successes) / len(successes), product_conditional=_product(stages, links)
        ),
        first_causes=first_causes(results),
        steps=spread([r.steps for r in results]),
        force=forces(results),
        interactions=interactions.of_objects(results),
        travelled_m=interactions.travelled_m(results),
        clutter_moved=extras.clutter_moved(results),
        view_blocked=extras.view_blocked([r.view_blocked for r in results]),
    )


def stage_rates(results: Sequence[HasStages]) -> list[StageRow]:
    """Returns for each stage of the plan how many episodes ran it, and how many succeeded in it.

    `rate` is succeeded / reached with its Wilson interval, by the plan's predicates. `skill_rate`
    is the same for `skill_succeeded`, by the skill's own thresholds. The two may disagree (an
    object 0.2 m off its goal is placed for HAB's plan, but not for its skill): `only_predicates`
    and `only_skill` count the runs that succeeded by one of them alone. `cumulative` is the share
    of all episodes in which this stage and every one before it handed over: a stage whose timeout
    ends the episode may have succeeded, but has not handed over. Stages with the same index and
    different names are kept apart.
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
        by_skill = sum(o.skill_success for o in reached)
        skill_rate = wilson(by_skill, len(reached))
        rows.append(
            StageRow(
                index=index,
                name=name,
                skill=skill,
                reached=len(reached),
                succeeded=succeeded,
                rate=rate.mean,
                ci_low=rate.ci_low,
                ci_high=rate.ci_high,
                cumulative=sum(whole for _, whole in outcomes) / len(results),
                skill_succeeded=by_skill,
                skill_rate=skill_rate.mean,
                skill_ci_low=skill_rate.ci_low,
                skill_ci_high=skill_rate.ci_high,
                only_predicates=sum(o.succeeded and not o.skill_success for o in reached),
                only_skill=sum(o.skill_success and not o.succeeded for o in reached),
            )
        )
    return rows


def goal_rates(results: Sequence[EpisodeResult]) -> list[GoalRow]:
    """Returns for each named stage goal, in the order of the plan, how often it was reached.

    `episodes` counts those whose plan has the goal; `rate` is reached / episodes, with its
    interval.
    """
    groups: dict[str, list[bool]] = defaultdict(list)
    for result in results:
        for name, reached in result.stage_goals.items():
            groups[name].append(reached)
    rows = []
    for name, outcomes in groups.items():
        rate = wilson(sum(outcomes), len(outcomes))
        counts = (len(outcomes), sum(outcomes))
        rows.append(GoalRow(name, *counts, rate.mean, rate.ci_low, rate.ci_high))
    return rows


def handoffs(results: Sequence[EpisodeResult]) -> list[HandoffRow]:
    """Returns the success of each stage after the stage before it succeeded.

    `n` counts the episodes in which the first stage succeeded and the second one was run. The
    interval is that of the tax, and None like the tax.
    """
    groups: dict[tuple[int, str, str], list[bool]] = defaultdict(list)
    for result in results:
        for index, (first, second) in enumerate(itertools.pairwise(result.stages)):
            group = groups[index, first.name, second.name]
            if first.succeeded and second.reached:
                group.append(second.succeeded)
    return [
        HandoffRow(
            index=index,
            from_=before,
            to=after,
            n=len(outcomes),
            rate_after_handoff=wilson(sum(outcomes), len(outcomes)).mean,
        )
        for (index, before, after), outcomes in sorted(groups.items())
    ]


def first_causes(results: Sequence[HasCause]) -> list[CauseRow]:
    """Groups failures by stage, predicate and reason, the most frequent first.

    `margin` is the median over the group.
    """
    groups: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for cause in (r.first_cause for r in results if r.first_cause is not None):
        kind = (cause.stage, cause.name, cause.skill, generic(cause.predicate))
        groups[*kind, cause.reason, cause.unit].append(cause.margin)
    rows = []
    for (stage, name, skill, predicate, reason, unit), margins in groups.items():
        finite = [margin for margin in margins if math.isfinite(margin)]
        margin = statistics.median(finite) if finite else None
        where = (stage, name, skill, predicate)
        rows.append(CauseRow(*where, reason, margin, unit, len(margins)))
    return sorted(rows, key=lambda r: (-r.count, r.stage, r.predicate, r.reason, r.unit))


def _product(stages: Sequence[StageRow], links: Sequence[HandoffRow]) -> float | None:
    """Returns the first stage's rate times those after each handoff.

    0 from the first factor that is 0; None if a factor was never measured, or unless all episodes
    share one sequence of stages.
    """
    if [stage.index for stage in stages] != list(range(len(stages))):
        return None
    product = 1.0
    rates = [stage.rate for stage in stages[:1]] + [link.rate_after_handoff for link in links]
    for rate in rates:
        if rate is None or rate == 0.0:
            return rate
        product *= rate
    return product


def forces(results: Sequence[HasForces]) -> Forces:
    """Summarises the forces of at least one run."""
    peaks, totals = [r.force_peak_n for r in results], [r.force_total_n for r in results]
    return Forces(spread(peaks), spread(totals))


def spread(values: Sequence[float]) -> Spread:
    """Returns mean, median, 90th percentile (nearest rank) and maximum of at least one value."""
    ordered = sorted(values)
    rank = -(-9 * len(ordered) // 10) - 1
    middle = statistics.median(ordered)
    return Spread(statistics.fmean(ordered), middle, ordered[rank], ordered[-1])
