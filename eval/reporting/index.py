"""Index of several reports: its rows, and the table in the terminal."""

from collections.abc import Mapping

from msgspec import UNSET
from rich.console import Console
from rich.text import Text

from eval.analysing.schema import Index, IndexRow, Report, SkillReport
from eval.reporting import acting, extras
from eval.reporting.table import table_of
from eval.reporting.words import percent


def scenario_rows(reports: Mapping[str, Report]) -> list[IndexRow]:
    """Returns the row of each scenario.

    `stages` is the mean number of plan steps that succeeded before the first failure, of
    `num_stages`. `disagree` counts the runs of stages in which the skill's own thresholds and the
    plan's predicates disagree, of `stages_run`.
    """
    return [
        IndexRow(
            name=name,
            folder=name,
            num_episodes=report.num_episodes,
            lost=extras.number_lost(report),
            success=report.success,
            goals_met=report.goals_met,
            stages=sum(stage.cumulative for stage in report.stages),
            num_stages=1 + max((stage.index for stage in report.stages), default=-1),
            disagree=sum(s.only_predicates + s.only_skill for s in report.stages),
            stages_run=sum(stage.reached for stage in report.stages),
            steps=report.steps,
            force=report.force,
            timeouts=report.timeouts,
            clutter_moved=report.clutter_moved,
            view_blocked=report.view_blocked,
        )
        for name, report in reports.items()
    ]


def skill_rows(reports: Mapping[str, SkillReport]) -> list[IndexRow]:
    """Returns the row of each skill."""
    return [
        IndexRow(
            name=name,
            folder=name,
            num_episodes=report.num_episodes,
            lost=extras.number_lost(report),
            success=report.success,
            ends=report.ends,
            steps=report.steps,
            force=report.force,
            reward=report.reward,
        )
        for name, report in reports.items()
    ]


def show(console: Console, summary: Index) -> None:
    """Prints the table."""
    count = f"{summary.num_episodes} episodes each"
    title = f"{summary.title}, {count}, protocol {summary.protocol}, {acting.who(summary)}"
    table = table_of(title)
    table.caption_justify = "left"
    table.collapse_padding = True  # otherwise some rows are truncated at 80 columns
    rows = [_narrow(cells(row)) for row in summary.runs]
    for place, head in enumerate(rows[0]):
        table.add_column(head, justify="right" if place else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row.values()))
    if "timeouts" in rows[0]:
        table.caption = "timeouts: success where they end the episode / where they are ignored"
    console.print(table)
    if lost := extras.all_lost(summary):
        console.print(lost, highlight=False, markup=False, soft_wrap=True)
    if sensing := acting.privileged(summary):
        console.print(sensing, highlight=False, markup=False, soft_wrap=True)


def _narrow(texts: dict[str, str]) -> dict[str, str]:
    """Returns a row for 80 columns: one column for both timeout readings, some left out."""
    both = f"{texts.pop('ending', '')}/{texts.pop('ignored', '')}"
    row = {head: text for head, text in texts.items() if head not in ("runs", "differ")}
    if both == "/":
        return row
    first = {head: row.pop(head) for head in ("name", "success", "95%")}
    return {**first, "timeouts": both.replace(".0%", "").replace("%", "") + "%", **row}


def cells(row: IndexRow) -> dict[str, str]:
    """Returns a row of the index as texts, by column head."""
    low, high = row.success.ci_low or 0, row.success.ci_high or 0
    texts = {
        "name": row.name,
        "runs": str(row.num_episodes),
        "success": percent(row.success.mean),
        "95%": f"{100 * low:.0f}-{100 * high:.0f}%",
    }
    if row.timeouts:
        texts |= {"ending": extras.ending(row), "ignored": extras.ignored(row)}
    if row.stages is not UNSET and row.goals_met is not UNSET:
        texts["goals"] = percent(row.goals_met)
        texts["stages"] = f"{row.stages:.1f}/{row.num_stages}"
        texts["differ"] = str(row.disagree)
    texts["steps"] = f"{row.steps.mean:.0f}"
    if row.clutter_moved:
        texts["moved"] = f"{row.clutter_moved.mean:.1f}"
    if row.reward is not UNSET:
        texts["reward"] = f"{row.reward.mean:.2f}"
        texts["peak force"] = f"{row.force.peak_n.median / 1000:.2f} kN"
    return texts
