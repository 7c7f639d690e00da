"""Evaluations of several agents on the same episodes, side by side."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from eval.analysing import paired, report
from eval.analysing.intervals import wilson
from eval.analysing.results import StageResult
from planner.execution.trace import Cause
from tpsrl.errors import UserError

# What of an agent's report stands in the comparison.
_KEPT = (
    "agent", "learned", "protocol", "protocol_changes", "replan", "version", "settings_command",
    "handoff_matrix",
)  # fmt: skip
_SAME = ("layout", "goals")  # of an episode, beside its id


@dataclasses.dataclass(frozen=True, slots=True)
class Evaluated:
    """An evaluation of a scenario: its folder as it was given, report.json and episodes.jsonl."""

    folder: str
    report: dict[str, Any]
    records: Sequence[dict[str, Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class _Outcome:
    """What rates and causes are counted from."""

    success: bool
    stages: tuple[StageResult, ...]
    first_cause: Cause | None


def compare(evaluations: Sequence[Evaluated]) -> dict[str, Any]:
    """The comparison of at least two evaluations as JSON types.

    Keys: what all share (`scenario`, `title`, `split`, `seed`, `dataset`, which is None where the
    numbers of episodes differ, and `num_episodes`, those that all have run), `agents` (for each its
    `name`, `folder`, parts of its header, the number of its own episodes, and on the common ones
    `success`, `stages` and `first_causes`; `handoff_matrix` is that of its own report),
    `differences` (of each to the first: `both`, `only_first`, `only_second`, `neither`, `value`
    with the paired and the unpaired interval, and McNemar's `p_value`), and `episodes`, those in
    which the agents differ, with the `outcomes` in the order of the agents.

    Raises:
        UserError: they are not of one scenario and the same episodes.
    """
    first = evaluations[0]
    for other in evaluations[1:]:
        _check_alike(first, other)
    by_id = [{record["id"]: record for record in e.records} for e in evaluations]
    common = [name for name in by_id[0] if all(name in records for records in by_id)]
    if not common:
        both = f"{first.folder} and {evaluations[1].folder}"
        raise UserError(f"report: {both} have no episode in common")
    for evaluation, records in zip(evaluations[1:], by_id[1:], strict=True):
        _check_same_episodes(first, evaluation, by_id[0], records, common)
    matched = [[records[name] for name in common] for records in by_id]
    names = short_names([e.folder for e in evaluations])
    agents = [
        _agent(name, evaluation, records)
        for name, evaluation, records in zip(names, evaluations, matched, strict=True)
    ]
    whole = all(e.report["num_episodes"] == len(common) for e in evaluations)
    shared = {key: first.report[key] for key in ("scenario", "title", "split", "seed")}
    return {
        **shared,
        "dataset": first.report["dataset"] if whole else None,
        "num_episodes": len(common),
        "agents": agents,
        "differences": _differences(names, matched),
        "episodes": _differing(common, matched),
    }


def short_names(folders: Sequence[str]) -> list[str]:
    """The last parts of paths, as many as tell them apart."""
    parts = [[part for part in folder.split("/") if part not in ("", ".")] for folder in folders]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(path[-depth:]) for path in parts]
        if len(set(names)) == len(names):
            return names
    return list(folders)


def _check_alike(first: Evaluated, other: Evaluated) -> None:
    one, two = first.report, other.report
    if one["scenario"] != two["scenario"]:
        raise UserError(
            f"report: {first.folder} is of {one['scenario']}, {other.folder} of"
            f" {two['scenario']}; agents are compared on one scenario"
        )
    counts = one["num_episodes"], two["num_episodes"]
    if counts[0] == counts[1] and one["dataset"] != two["dataset"]:
        raise UserError(
            f"report: {first.folder} (dataset {one['dataset']}) and {other.folder}"
            f" (dataset {two['dataset']}) are of different episodes"
        )


def _check_same_episodes(
    first: Evaluated,
    other: Evaluated,
    ones: dict[str, dict[str, Any]],
    twos: dict[str, dict[str, Any]],
    common: Sequence[str],
) -> None:
    """A digest tells of all episodes together; of fewer of them, each record has to."""
    for name in common:
        if any(ones[name][key] != twos[name][key] for key in _SAME):
            raise UserError(
                f"report: {first.folder} and {other.folder} are of different episodes;"
                f" '{name}' is another one in each"
            )


def _agent(name: str, evaluation: Evaluated, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    outcomes = [_outcome(record) for record in records]
    good = sum(outcome.success for outcome in outcomes)
    return {
        "name": name,
        "folder": evaluation.folder,
        **{key: evaluation.report.get(key) for key in _KEPT},
        "num_episodes": evaluation.report["num_episodes"],
        "success": dataclasses.asdict(wilson(good, len(outcomes))),
        "stages": report.stage_rates(outcomes),
        "first_causes": report.first_causes(outcomes),
    }


def _outcome(record: dict[str, Any]) -> _Outcome:
    """A margin that is None was not finite; causes are not counted by it."""
    cause = record["first_cause"]
    if cause is not None:
        margin = float("nan") if cause["margin"] is None else cause["margin"]
        cause = Cause(**{**cause, "margin": margin})
    stages = tuple(StageResult(**stage) for stage in record["stages"])
    return _Outcome(record["success"], stages, cause)


def _differences(
    names: Sequence[str], matched: Sequence[Sequence[dict[str, Any]]]
) -> list[dict[str, Any]]:
    successes = [[record["success"] for record in records] for records in matched]
    rows = []
    for name, outcomes in zip(names[1:], successes[1:], strict=True):
        counts = paired.pairs(successes[0], outcomes)
        row = {"name": name, "against": names[0], **dataclasses.asdict(counts)}
        row |= dataclasses.asdict(paired.paired_difference(counts))
        apart = paired.unpaired_difference(counts)
        row |= {"unpaired_ci_low": apart.ci_low, "unpaired_ci_high": apart.ci_high}
        rows.append(row | {"p_value": paired.mcnemar(counts)})
    return rows


def _differing(
    common: Sequence[str], matched: Sequence[Sequence[dict[str, Any]]]
) -> list[dict[str, Any]]:
    kept = ("success", "steps", "first_cause", "cause_text", "set_up_by", "video")
    return [
        {"id": name, "outcomes": [{key: record.get(key) for key in kept} for record in records]}
        for name, records in zip(common, zip(*matched, strict=True), strict=True)
        if len({record["success"] for record in records}) > 1
    ]
