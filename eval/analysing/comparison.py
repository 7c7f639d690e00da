"""Comparison of evaluations of several agents on the same episodes."""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from eval.analysing import paired, skill_results
from eval.analysing.intervals import wilson
from eval.analysing.report import first_causes, stage_rates
from eval.analysing.results import EpisodeResult
from eval.analysing.schema import (
    AgentDifference,
    ComparedAgent,
    ComparedOutcome,
    Comparison,
    DifferingEpisode,
    Report,
    SkillReport,
)
from eval.analysing.skill_results import SkillResult
from tpsrl.errors import UserError


@dataclasses.dataclass(frozen=True, slots=True)
class Evaluated:
    """An evaluation to compare.

    Attributes:
        folder: path as the user gave it
        report: from report.json
        results: from episodes.jsonl
    """

    folder: str
    report: Report | SkillReport
    results: Sequence[Any]

    @property
    def subject(self) -> str:
        """Scenario or skill that was evaluated."""
        of_skill = isinstance(self.report, SkillReport)
        return (self.report.skill if of_skill else self.report.scenario) or ""


def compare(evaluations: Sequence[Evaluated]) -> Comparison:
    """Compares at least two evaluations.

    The figures of `agents` are over the episodes that all evaluations have run, which
    `num_episodes` counts; their `handoff_matrix` and `num_episodes` are taken from their own
    reports. `dataset` is None if the numbers of episodes differ. `differences` are of each agent to
    the first one.

    Raises:
        UserError: the evaluations differ in scenario or skill, or in their episodes.
    """
    first = evaluations[0]
    for other in evaluations[1:]:
        _check_alike(first, other)
    by_id = [_by_id(e.results) for e in evaluations]
    common = [name for name in by_id[0] if all(name in results for results in by_id)]
    if not common:
        both = f"{first.folder} and {evaluations[1].folder}"
        raise UserError(f"report: {both} have no episode in common")
    for evaluation, results in zip(evaluations[1:], by_id[1:], strict=True):
        _check_same_episodes(first, evaluation, by_id[0], results, common)
    matched = [[results[name] for name in common] for results in by_id]
    names = short_names([e.folder for e in evaluations])
    whole = all(e.report.num_episodes == len(common) for e in evaluations)
    return Comparison(
        scenario=first.report.scenario,
        skill=first.report.skill,
        title=first.report.title,
        split=first.report.split,
        seed=first.report.seed,
        dataset=first.report.dataset if whole else None,
        num_episodes=len(common),
        agents=[
            _agent(name, evaluation, results)
            for name, evaluation, results in zip(names, evaluations, matched, strict=True)
        ],
        differences=_differences(names, matched),
        episodes=_differing(common, matched),
    )


def _by_id(results: Sequence[Any]) -> dict[str, Any]:
    """Returns results by id; repeated ids, of start states of one episode, are numbered."""
    found: dict[str, Any] = {}
    counts = collections.Counter[str]()
    for result in results:
        counts[result.id] += 1
        count = counts[result.id]
        found[result.id if count == 1 else f"{result.id} ({count})"] = result
    return found


def short_names(folders: Sequence[str]) -> list[str]:
    """Returns the shortest path suffixes, of equal depth, that are unique."""
    parts = [[part for part in folder.split("/") if part not in ("", ".")] for folder in folders]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(path[-depth:]) for path in parts]
        if len(set(names)) == len(names):
            return names
    return list(folders)


def _check_alike(first: Evaluated, other: Evaluated) -> None:
    one, two = first.report, other.report
    if (type(one), first.subject) != (type(two), other.subject):
        raise UserError(
            f"report: {first.folder} evaluates {first.subject}, {other.folder} evaluates"
            f" {other.subject}; all folders must evaluate the same scenario or skill"
        )
    if one.num_episodes == two.num_episodes and one.dataset != two.dataset:
        raise UserError(
            f"report: {first.folder} (dataset {one.dataset}) and {other.folder}"
            f" (dataset {two.dataset}) have different episodes"
        )


def _check_same_episodes(
    first: Evaluated,
    other: Evaluated,
    ones: dict[str, Any],
    twos: dict[str, Any],
    common: Sequence[str],
) -> None:
    """Checks that episodes with the same id are the same in both evaluations.

    The digest covers all episodes of a run; for a subset, each record has to be compared.
    """
    for name in common:
        one, two = ones[name], twos[name]
        if (one.layout, _goals(one)) != (two.layout, _goals(two)):
            raise UserError(
                f"report: {first.folder} and {other.folder} have different episodes;"
                f" '{name}' differs between them"
            )


def _goals(result: EpisodeResult | SkillResult) -> int:
    return result.goals if isinstance(result, EpisodeResult) else 0


def _agent(name: str, evaluation: Evaluated, results: Sequence[Any]) -> ComparedAgent:
    report = evaluation.report
    own = _of_skill(results) if isinstance(report, SkillReport) else _of_scenario(report, results)
    return ComparedAgent(
        name=name,
        folder=evaluation.folder,
        agent=report.agent,
        learned=report.learned,
        protocol=report.protocol,
        protocol_changes=report.protocol_changes,
        version=report.version,
        versions=report.versions,
        num_episodes=report.num_episodes,
        success=wilson(sum(result.success for result in results), len(results)),
        first_causes=first_causes(results),
        **own,
    )


def _of_scenario(report: Report, results: Sequence[EpisodeResult]) -> dict[str, Any]:
    return {
        "replan": report.replan,
        "settings_command": report.settings_command,
        "handoff_matrix": None if report.handoff_matrix is UNSET else report.handoff_matrix,
        "stages": stage_rates(results),
    }


def _of_skill(results: Sequence[SkillResult]) -> dict[str, Any]:
    parts = skill_results.parts(results)
    return {"settings_command": None, "handoff_matrix": None, "parts": parts}


def _differences(
    names: Sequence[str], matched: Sequence[Sequence[EpisodeResult | SkillResult]]
) -> list[AgentDifference]:
    successes = [[result.success for result in results] for results in matched]
    rows = []
    for name, outcomes in zip(names[1:], successes[1:], strict=True):
        counts = paired.pairs(successes[0], outcomes)
        apart = paired.unpaired_difference(counts)
        rows.append(
            AgentDifference(
                name=name,
                against=names[0],
                **dataclasses.asdict(counts),
                **dataclasses.asdict(paired.paired_difference(counts)),
                unpaired_ci_low=apart.ci_low,
                unpaired_ci_high=apart.ci_high,
                p_value=paired.mcnemar(counts),
            )
        )
    return rows


def _differing(
    common: Sequence[str], matched: Sequence[Sequence[EpisodeResult | SkillResult]]
) -> list[DifferingEpisode]:
    return [
        DifferingEpisode(name, [_outcome(result) for result in results])
        for name, results in zip(common, zip(*matched, strict=True), strict=True)
        if len({result.success for result in results}) > 1
    ]


def _outcome(result: EpisodeResult | SkillResult) -> ComparedOutcome:
    of_chain = result if isinstance(result, EpisodeResult) else None
    return ComparedOutcome(
        success=result.success,
        steps=result.steps,
        first_cause=result.first_cause,
        cause_text=None if of_chain is None else of_chain.cause_text,
        set_up_by=None if of_chain is None else of_chain.set_up_by,
        video=result.video,
    )
