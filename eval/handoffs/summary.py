"""Handoff analysis of a report, computed from the studies of its episodes."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from eval.analysing.results import EpisodeResult
from eval.analysing.schema import AnalysisSize, Report
from eval.handoffs import blame, flow, matrix, propagation, ranking
from eval.handoffs.findings import findings
from eval.handoffs.repairs import KINDS
from eval.handoffs.study import Players

CANONICAL = (
    "A `state` repair places the base, with the arm at rest, at a start state of the next skill"
    " that is drawn in the current home; a held object hangs centred and upright, and doors and"
    " drawers that the plan has opened are as wide open as in the scenario's episodes. An `effect`"
    " repair makes the effects true that a step did not achieve or that were lost later."
)


@dataclasses.dataclass(frozen=True, slots=True)
class Analysis:
    """Studies of the first episodes of an evaluation, with players and budget."""

    studies: Sequence[Mapping[str, Any]]
    players: Players
    budget: int


def with_blame(results: Sequence[EpisodeResult], analysis: Analysis) -> list[EpisodeResult]:
    """Returns the results with `set_up_by` for the episodes that were studied.

    The blame is for the step at which the chain broke. If the missing effect came about later, the
    failure began with another step, and `set_up_by` is None.
    """
    culprits = blame.set_up_by(analysis.studies)
    changed = []
    for result, study, culprit in zip(results, analysis.studies, culprits, strict=False):
        cause = result.first_cause
        began = cause is not None and cause.stage == blame.broken_at(study)
        changed.append(dataclasses.replace(result, set_up_by=culprit if began else None))
    return [*changed, *results[len(changed) :]]


def with_handoffs(
    report: Report,
    results: Sequence[EpisodeResult],
    analysis: Analysis | None,
    graph: Any,
) -> Report:
    """Returns the report with its keys on handoffs; docs/handoffs.md explains them.

    Args:
        report: without these keys
        results: of `with_blame`
        analysis: None: only the flow is added
        graph: `flow.flow(results)`, a `networkx.DiGraph`
    """
    report = structs.replace(report, flow=flow.as_rows(graph))
    if analysis is None:
        return report
    studies, players = analysis.studies, analysis.players
    steps = [[stage.steps for stage in result.stages] for result in results[: len(studies)]]
    whole = {kind: ranking.complete(kind, studies, players) for kind in KINDS}
    report = structs.replace(
        report,
        analysis=AnalysisSize(
            episodes=len(studies),
            repaired={kind: len(group) for kind, group in whole.items()},
            steps=sum(study["steps_run"] for study in studies),
            repair_steps=sum(study["repair_steps"] for study in studies),
            budget=analysis.budget,
            canonical=CANONICAL,
        ),
        handoffs=matrix.by_step(studies),
        handoff_matrix=matrix.by_skills(studies),
        propagation=propagation.propagation(studies, steps),
        repairs=ranking.ranked(studies, players),
        repair_all=ranking.repair_all(studies, players),
        blame=blame.blamed(studies, [r.set_up_by for r in results[: len(studies)]]),
    )
    return structs.replace(report, findings=findings(report))
