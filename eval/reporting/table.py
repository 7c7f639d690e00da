"""Report in the terminal."""

from collections.abc import Sequence
from typing import Any

import rich.box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from eval.analysing.results import EpisodeResult
from eval.analysing.schema import (
    CauseRow,
    MatrixRow,
    RepairRow,
    Report,
    SkillReport,
    StageRow,
)
from eval.reporting import extras, words
from eval.reporting.words import Bounded, percent, signed

_FAILED = 3  # episodes that are named


def show(console: Console, report: Report, results: Sequence[EpisodeResult] = ()) -> None:
    """Prints stages, first causes, taxes of handoffs, and overall success with findings.

    Of the failed episodes among `results`, the first few are named, with a command to film one.

    Columns: `run` counts the episodes that ran the stage, `done` success by the plan's predicates,
    `skill` by the skill's own thresholds, `differ` the runs in which the two disagree. `rate` and
    interval are of `done`; `chain` is the share of all episodes in which every stage so far was
    completed, in the last line that of full success.
    """
    parts: list[Any] = [_stages(report.stages, report.success.mean)]
    if report.stage_goals:
        parts.append(_goals(report))
    if report.first_causes:
        parts.append(_causes(report.first_causes))
    if report.handoff_matrix:
        parts.append(_handoffs(report.handoff_matrix))
    if report.repairs:
        parts.append(_repairs(report.repairs))
    console.print(Group(*parts))
    console.print(_overall(report))
    for line in report.findings or ():
        console.print(f"- {line}", highlight=False, markup=False, soft_wrap=True)
    for line in [*extras.lines(report), *_failed(report, results)]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _failed(report: Report, results: Sequence[EpisodeResult]) -> list[str]:
    """Returns a line for each of the first failed episodes, and how to film the first of them."""
    failed = [one for one in results if one.first_cause is not None and one.cause_text]
    lines = []
    for one in failed[:_FAILED]:
        assert one.first_cause is not None and one.cause_text is not None
        where = words.stage(one.first_cause.name) or "end"
        lines.append(f"{one.id} failed: {where}: {words.figures(one.first_cause, one.cause_text)}")
    if failed and report.settings_command:
        lines.append(f"film it: {words.replay(report.settings_command, failed[0].id)}")
    return lines


def show_skill(console: Console, report: SkillReport) -> None:
    """Prints conditions of success, first causes and success of a skill in isolation."""
    parts = table_of(f"{report.title}, {report.agent} agent")
    for head in ("part of success", "held", "missed by"):
        parts.add_column(head, justify="left" if head == "part of success" else "right")
    for part in report.parts:
        held = f"{part.held} of {part.runs}"
        parts.add_row(Text(part.name), held, Text(signed(part.median_lacking, part.unit)))
    console.print(parts)
    if report.first_causes:
        console.print(_causes(report.first_causes))
    figures = f"{report.steps.mean:.0f} steps, reward {report.reward.mean:.2f}"
    if found := words.driving(report):
        name, figure, sure = found
        figures += f", {name} {figure}" + (f" ({sure})" if sure else "")
    console.print(Text.assemble(_overall(report, "success"), f"; mean {figures}"))
    for line in extras.lines(report):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _stages(stages: Sequence[StageRow], success: float | None) -> Table:
    table = table_of("Stages")
    heads = ("", "stage", "run", "done", "skill", "differ", "rate", "95%", "chain")
    for head in heads:
        if head == "stage":
            table.add_column(head, overflow="fold")
        else:
            table.add_column(head, justify="right", no_wrap=True)
    for stage in stages:
        table.add_row(
            str(stage.index + 1),
            Text(words.stage(stage.name)),
            str(stage.reached),
            str(stage.succeeded),
            str(stage.skill_succeeded),
            str(stage.only_predicates + stage.only_skill),
            _whole(stage.rate),
            _interval(stage) if stage.reached else "-",
            _whole(stage.cumulative),
        )
    table.add_row("", "full success", *[""] * 6, _whole(success))
    return table


def _interval(row: Bounded) -> str:
    return f"{100 * (row.ci_low or 0):.0f}-{_whole(row.ci_high)}"


def _whole(share: float | None) -> str:
    """Returns a share in whole percent for a narrow column; the report has the exact one."""
    return "-" if share is None else f"{100 * share:.0f}%"


def _goals(report: Report) -> Table:
    table = table_of(f"Stage goals, reached by the rule '{report.stage_rule}'")
    for head in ("goal", "reached", "rate", "95% interval"):
        table.add_column(head, justify="left" if head == "goal" else "right", no_wrap=True)
    for goal in report.stage_goals:
        count = f"{goal.reached} of {goal.episodes}"
        table.add_row(Text(goal.name), count, percent(goal.rate), words.interval(goal))
    return table


def _causes(causes: Sequence[CauseRow]) -> Table:
    table = table_of("First causes of failure")
    for head in ("count", "stage", "failed condition", "reason", "margin"):
        table.add_column(head, justify="right" if head in ("count", "margin") else "left")
    for cause in causes:
        number = "" if cause.stage < 0 else f"{cause.stage + 1} "
        table.add_row(
            str(cause.count),
            Text(number + words.stage(cause.name)),
            Text(words.fact(cause.predicate)),
            Text(words.reason(cause.reason)),
            Text(signed(cause.margin, cause.unit)),
        )
    return table


def _handoffs(matrix: Sequence[MatrixRow]) -> Table:
    table = table_of("Handoffs: success after it and in isolation; tax in percentage points")
    for head in ("from -> to", "n", "after", "isolated", "tax", "95%", ""):
        table.add_column(head, justify="left" if head in ("from -> to", "") else "right")
    for row in matrix:
        table.add_row(
            Text(words.link(row)),
            str(row.n),
            _whole(row.after.mean if row.after else None),
            _whole(row.isolated.mean if row.isolated else None),
            words.points(row.tax),
            words.points_interval(row),
            "significant" if row.significant else "",
        )
    return table


def _repairs(repairs: Sequence[RepairRow]) -> Table:
    table = table_of("Repairs: gain of full success in percentage points")
    for head in ("repaired", "what", "success", "gain", "95%", "Shapley"):
        table.add_column(head, justify="left" if head in ("repaired", "what") else "right")
    for row in repairs:
        table.add_row(
            Text(words.link(row)),
            Text(words.plain(row.kind)),
            f"{_whole(row.before)} to {_whole(row.after)}",
            words.points(row.gain),
            words.points_interval(row),
            words.points(row.shapley),
        )
    return table


def _overall(report: Report | SkillReport, what: str = "full success") -> Text:
    success = report.success
    count = report.num_episodes
    done = round((success.mean or 0) * count)
    interval = words.interval(success)
    return Text.assemble(
        (f"{what} {percent(success.mean)}", "bold"),
        f" ({done} of {count} episodes, 95% interval {interval})",
    )


def table_of(title: str) -> Table:
    """Returns an empty table in the common style."""
    style = {"title_justify": "left", "title_style": "bold", "pad_edge": False}
    return Table(title=Text(title), box=rich.box.SIMPLE_HEAD, **style)  # type: ignore[arg-type]
