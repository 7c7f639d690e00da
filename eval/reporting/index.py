"""The table that leads to several reports: on the terminal, as a page, and as JSON rows."""

from collections.abc import Mapping
from typing import Any

import rich.box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from eval.reporting import acting, blocks, extras
from eval.reporting.words import percent

_SCENARIOS_NOTE = """Full success with its 95% Wilson interval; success with timeouts ending the
episode, and with timeouts ignored; objects at their goals at the end;
the mean number of the plan's steps that succeeded before the first one failed; how many steps were
run in which the skill's own thresholds and the plan's predicates disagree; the mean number of
control steps, and of clutter moved by more than 0.1 m."""
_SKILLS_NOTE = """Success with its 95% Wilson interval; means of control steps and of the reward;
the median of the largest force of a run."""


def scenario_rows(reports: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """What the index says of each scenario.

    `stages` is the mean number of steps of the plan that succeeded before the first one failed, of
    `num_stages`; `disagree` counts the stages run in which the skill's own thresholds and the
    plan's predicates disagree, of `stages_run`. `timeouts`, `clutter_moved` and `view_blocked` are
    the reports', None where they do not have them.
    """
    rows = []
    for name, report in reports.items():
        stages = report["stages"]
        row = {"name": name, "folder": name, "num_episodes": report["num_episodes"]}
        row |= {"success": report["success"], "goals_met": report["goals_met"]}
        row |= {"stages": sum(stage["cumulative"] for stage in stages)}
        row |= {"num_stages": 1 + max((stage["index"] for stage in stages), default=-1)}
        row |= {"disagree": sum(s["only_predicates"] + s["only_skill"] for s in stages)}
        row |= {"stages_run": sum(stage["reached"] for stage in stages)}
        row |= {"steps": report["steps"], "force": report["force"]}
        both = {key: report.get(key) for key in ("timeouts", "clutter_moved", "view_blocked")}
        rows.append(row | both)
    return rows


def skill_rows(reports: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """What the index says of each skill."""
    keys = ("num_episodes", "success", "ends", "steps", "force", "reward")
    return [
        {"name": name, "folder": name, **{key: report[key] for key in keys}}
        for name, report in reports.items()
    ]


def show(console: Console, summary: dict[str, Any]) -> None:
    """Prints the table."""
    style = {"title_justify": "left", "title_style": "bold", "pad_edge": False}
    style |= {
        "caption_justify": "left",
        "collapse_padding": True,
    }  # or some rows would be cut off at 80 columns
    count = f"{summary['runs'][0]['num_episodes']} episodes each"
    title = f"{summary['title']}, {count}, protocol {summary['protocol']}, {acting.who(summary)}"
    table = Table(title=Text(title), box=rich.box.SIMPLE_HEAD, **style)  # type: ignore[arg-type]
    cells = [_narrow(_cells(row)) for row in summary["runs"]]
    for place, head in enumerate(cells[0]):
        table.add_column(head, justify="right" if place else "left", no_wrap=True)
    for row in cells:
        table.add_row(*(Text(cell) for cell in row.values()))
    if "timeouts" in cells[0]:
        table.caption = "timeouts: success where they end the episode / where they are ignored"
    console.print(table)
    if sensing := acting.privileged(summary):
        console.print(sensing, highlight=False, markup=False, soft_wrap=True)


def _narrow(cells: dict[str, str]) -> dict[str, str]:
    """A row that fits into 80 columns: both readings share one, some are on the page alone."""
    both = f"{cells.pop('ending', '')}/{cells.pop('ignored', '')}"
    row = {head: text for head, text in cells.items() if head not in ("runs", "differ")}
    if both == "/":
        return row
    first = {head: row.pop(head) for head in ("name", "success", "95%")}
    return {**first, "timeouts": both.replace(".0%", "").replace("%", "") + "%", **row}


def render(summary: dict[str, Any]) -> str:
    """The page; links lead to the reports in the folders beside it."""
    cells = [_cells(row) for row in summary["runs"]]
    heads = [f"#{head}" if place else head for place, head in enumerate(cells[0])]
    rows = [
        [blocks.anchor(f"{run['folder']}/report.html", run["name"]), *list(row.values())[1:]]
        for run, row in zip(summary["runs"], cells, strict=True)
    ]
    note = _SCENARIOS_NOTE if "stages" in summary["runs"][0] else _SKILLS_NOTE
    results = blocks.table(heads, rows, "Results")
    sections = [blocks.section("Results", note, results), blocks.protocol(summary)]
    title = f"{summary['title']}, {acting.who(summary)}"
    return blocks.shell(title, blocks.common_facts(summary), sections)


def _cells(row: dict[str, Any]) -> dict[str, str]:
    """A row of the index as texts, by the head of the column."""
    success = row["success"]
    cells = {
        "name": row["name"],
        "runs": str(row["num_episodes"]),
        "success": percent(success["mean"]),
        "95%": f"{100 * success['ci_low']:.0f}-{100 * success['ci_high']:.0f}%",
    }
    if row.get("timeouts"):
        cells |= {"ending": extras.ending(row), "ignored": extras.ignored(row)}
    if "stages" in row:
        cells["goals"] = percent(row["goals_met"])
        cells["stages"] = f"{row['stages']:.1f}/{row['num_stages']}"
        cells["differ"] = str(row["disagree"])
    cells["steps"] = f"{row['steps']['mean']:.0f}"
    if row.get("clutter_moved"):
        cells["moved"] = f"{row['clutter_moved']['mean']:.1f}"
    if "reward" in row:
        cells["reward"] = f"{row['reward']['mean']:.2f}"
        cells["peak force"] = f"{row['force']['peak_n']['median'] / 1000:.2f} kN"
    return cells
