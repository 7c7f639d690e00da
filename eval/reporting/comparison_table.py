"""Comparison of several agents in the terminal."""

from rich.console import Console
from rich.text import Text

from eval.analysing.schema import AgentDifference, Comparison
from eval.reporting import acting, words
from eval.reporting.differences import sentence, warnings
from eval.reporting.table import table_of
from eval.reporting.words import percent, points


def show(console: Console, report: Comparison) -> None:
    """Prints success, paired differences to the first agent, and warnings about the comparison."""
    table = table_of(f"{report.title}, {report.num_episodes} common episodes")
    for head in ("agent", "success", "95% interval", "difference", "paired 95%", "p"):
        table.add_column(head, justify="left" if head == "agent" else "right")
    differences: list[AgentDifference | None] = [None, *report.differences]
    for agent, row in zip(report.agents, differences, strict=True):
        cells = ["", "", ""]
        if row is not None:
            cells = [points(row.value), words.points_interval(row)]
            cells.append(words.probability(row.p_value))
        success = agent.success
        table.add_row(Text(agent.name), percent(success.mean), words.interval(success), *cells)
    console.print(table)
    lines = [sentence(row) for row in report.differences] + warnings(report)
    for agent in report.agents:
        if sensing := acting.privileged(agent):
            lines.append(f"{agent.name}: {sensing}")
    lines.append(f"{len(report.episodes)} episodes differ")
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
