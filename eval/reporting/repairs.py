"""Which handoff to mend first: what repairing it brings, each kind of repair by itself."""

from collections.abc import Sequence
from typing import Any

from eval.reporting import bars, blocks, words
from eval.reporting.markup import Markup, fill, join
from eval.reporting.words import percent, points

_NOTE = """The same episodes are run again with one kind of handoff repaired, the others as they
were. The gain is in percentage points of full success, with its 95% interval; Shapley is the mean
of the gain over all orders in which the handoffs could be repaired one after another, which shares
out what several bring only together."""

_NOT_RUN = "Not measured: the control steps that repairs may take did not suffice for it."


def section(report: dict[str, Any]) -> Markup | str:
    """The box with both rankings, "" where nothing was repaired."""
    rows = report.get("repairs") or []
    if not rows:
        return ""
    analysis = report.get("analysis") or {}
    canonical = analysis.get("canonical") or ""
    together = report.get("repair_all") or {}
    parts = [blocks.prose(canonical, "note")] if canonical else []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        parts += _ranking(kind, [row for row in rows if row["kind"] == kind], together.get(kind))
    for kind, count in (analysis.get("repaired") or {}).items():
        if not count:
            parts += [blocks.subheading(words.repair(kind)), blocks.paragraph(_NOT_RUN)]
    return blocks.section("What to repair first", _NOTE, *parts)


def _ranking(
    kind: str, rows: Sequence[dict[str, Any]], together: dict[str, Any] | None
) -> list[Markup]:
    parts = [blocks.subheading(words.repair(kind))]
    parts.append(blocks.paragraph(words.repair_sentence(rows[0]), "strong"))
    if together and together.get("after") is not None:
        text = f"All of them repaired: {percent(together['before'])} to"
        text += f" {percent(together['after'])}, {points(together['gain'])} points"
        parts.append(blocks.paragraph(f"{text} ({words.points_interval(together)})."))
    return [*parts, _chart(rows), _table(kind, rows)]


def _chart(rows: Sequence[dict[str, Any]]) -> Markup:
    keys = ("gain", "ci_low", "ci_high")
    values = [0.0, *(row[key] for row in rows for key in keys if row.get(key) is not None)]
    axis = bars.around(values)
    drawn = [
        bars.row(
            axis,
            words.link(row),
            join(
                (
                    bars.bar(axis, 0.0, row["gain"], "bar"),
                    bars.point(axis, row["gain"], row.get("ci_low"), row.get("ci_high")),
                )
            ),
            fill(
                "<strong>{}</strong> {}",
                points(row["gain"]),
                blocks.span("soft", words.points_interval(row)),
            ),
        )
        for row in rows
    ]
    return bars.chart(axis, drawn, "bars plain", signed=True)


def _table(kind: str, rows: Sequence[dict[str, Any]]) -> Markup:
    cells = [
        [
            words.link(row),
            f"{percent(row['before'])} to {percent(row['after'])}",
            f"{points(row['gain'])} ({words.points_interval(row)})",
            _shapley(row),
            f"{row['applied']} of {row['n']}",
        ]
        for row in rows
    ]
    heads = ["repaired", "#full success", "#gain, points", "#Shapley, points", "#episodes changed"]
    return blocks.table(heads, cells, f"Repairs, {kind}")


def _shapley(row: dict[str, Any]) -> str:
    if row.get("shapley") is None:
        return "not measured"
    return f"{points(row['shapley'])} ({words.points_interval(row, 'shapley_ci_')})"
