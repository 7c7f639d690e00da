"""The comparison of several agents on the terminal."""

from typing import Any

import rich.box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from eval.reporting import acting, words
from eval.reporting.comparison_page import sentence, warnings
from eval.reporting.words import percent, points


def show(console: Console, report: dict[str, Any]) -> None:
    """Prints success, paired differences against the first, and what stands in their way."""
    table = _table(f"{report['title']}, {report['num_episodes']} common episodes")
    for head in ("agent", "success", "95% interval", "difference", "paired 95%", "p"):
        table.add_column(head, justify="left" if head == "agent" else "right")
    differences = [None, *report["differences"]]
    for agent, row in zip(report["agents"], differences, strict=True):
        cells = ["", "", ""]
        if row is not None:
            cells = [points(row["value"]), words.points_interval(row)]
            cells.append(words.probability(row["p_value"]))
        success = agent["success"]
        table.add_row(
            Text(agent["name"]), percent(success["mean"]), words.interval(success), *cells
        )
    console.print(table)
    lines = [sentence(row) for row in report["differences"]] + warnings(report)
    for agent in report["agents"]:
        if sensing := acting.privileged(agent):
            lines.append(f"{agent['name']}: {sensing}")
    lines.append(f"{len(report['episodes'])} episodes differ")
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _table(title: str) -> Table:
    style: dict[str, Any] = {"title_justify": "left", "title_style": "bold", "pad_edge": False}
    return Table(title=Text(title), box=rich.box.SIMPLE_HEAD, **style)
