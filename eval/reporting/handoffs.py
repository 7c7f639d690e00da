"""What handoffs cost: from skill to skill, by how far off the second one starts, step by step."""

from collections.abc import Sequence
from html import escape
from typing import Any

from eval.reporting import blocks, words
from eval.reporting.words import percent, points

_NOTE = """How the skill at the top fares where the one at the left has just succeeded. Isolated is
the same skill on the same episodes from its own start states, and the tax is what is lost against
that, in percentage points with its 95% interval. A thick frame and the word say which are
significant."""
_UNMEASURED = """How skills fare from their own start states was not measured, so there are no taxes
of handoffs, no split of the loss and no repairs."""
_ERRORS_NOTE = """Success after the handoff by how far off the second skill started, with its 95%
interval; below each bar from where to where it counts, and how many."""
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 320, 180, 44, 20, 10, 40  # pixels of a small chart


def section(report: dict[str, Any]) -> str:
    """The box with all that the report says of handoffs, "" when it has none."""
    matrix, steps = report.get("handoff_matrix") or [], report.get("handoffs") or []
    if not matrix and not steps:
        return ""
    if not matrix:
        listed = _steps(steps)
        return blocks.section("Handoffs", _UNMEASURED, blocks.folded("Every handoff", listed))
    parts = [blocks.paragraph(text, "note") for text in _how(report.get("analysis"))]
    parts += [blocks.scrolling(_matrix(matrix), "Handoffs from skill to skill"), _errors(matrix)]
    if steps:
        parts.append(blocks.folded("Every handoff of the plan", _steps(steps)))
    return blocks.section("Handoffs", _NOTE, *parts)


def _how(analysis: dict[str, Any] | None) -> list[str]:
    if not analysis:
        return []
    text = f"Skills were run in isolation on the first {analysis['episodes']} episodes"
    if analysis.get("steps") is not None:
        text += f", which took {analysis['steps'] / 1e6:.2f} million control steps with repairs"
    if analysis.get("repair_steps") is not None:
        allowed = analysis["budget"] / 1e6
        text += f"; {analysis['repair_steps'] / 1e6:.2f} million of these went into repairs"
        text += f", {allowed:.2f} million were allowed"
    return [f"{text}."]


def _matrix(matrix: Sequence[dict[str, Any]]) -> str:
    cells = {(row["from"], row["to"]): row for row in matrix}
    befores = list(dict.fromkeys(row["from"] for row in matrix))
    afters = list(dict.fromkeys(row["to"] for row in matrix))
    head = "".join(f'<th scope="col">to {escape(words.plain(name))}</th>' for name in afters)
    rows = [
        f'<tr><th scope="row">from {escape(words.plain(before))}</th>'
        f"{''.join(_cell(cells.get((before, after))) for after in afters)}</tr>"
        for before in befores
    ]
    body = f"<thead><tr><td></td>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<table class="matrix">{body}</table>'


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return '<td class="none">does not occur</td>'
    after, isolated, tax = row.get("after") or {}, row.get("isolated") or {}, row.get("tax")
    lines = [
        f"<b>{percent(after.get('mean'))}</b> after the handoff",
        f"{percent(isolated.get('mean'))} isolated",
    ]
    if tax is None:
        lines.append("tax not measured")
    else:
        lines.append(f"tax <strong>{points(tax)}</strong> ({words.points_interval(row)})")
    lines.append(blocks.span("soft", _count(row)))
    significant = bool(row.get("significant"))
    if significant:
        lines.append("<strong>▲ significant</strong>")
    kind = ' class="significant"' if significant else ""
    return f"<td{kind}{_shade(tax)}>{'<br/>'.join(lines)}</td>"


def _count(row: dict[str, Any]) -> str:
    p = row.get("p_value")
    return f"n = {row['n']}" if p is None else f"n = {row['n']}, p {words.probability(p)}"


def _shade(tax: float | None) -> str:
    """Orange for what a handoff costs, blue for what it brings, deeper for more."""
    if not tax:
        return ""
    colour = "230, 159, 0" if tax > 0 else "86, 180, 233"
    return f' style="background: rgba({colour}, {min(0.5, 0.06 + 1.6 * abs(tax)):.2f})"'


def _errors(matrix: Sequence[dict[str, Any]]) -> str:
    groups = [
        blocks.subheading(f"How far off: {words.link(row)}")
        + f'<div class="small-charts">{"".join(map(_error, row["errors"]))}</div>'
        for row in matrix
        if row.get("errors")
    ]
    if not groups:
        return ""
    return blocks.paragraph(_ERRORS_NOTE, "note") + "".join(groups)


def _error(error: dict[str, Any]) -> str:
    name, unit = words.dimension(error["dimension"]), error["unit"]
    medians = [
        f"{text} {_amount(error[key], unit)}"
        for key, text in (
            ("median_before_success", "success"),
            ("median_before_failure", "failure"),
        )
        if error.get(key) is not None
    ]
    caption = f"<strong>{escape(name)}</strong>{f', {escape(unit)}' if unit != 'share' else ''}"
    if medians:
        caption += f"<br/>{blocks.span('soft', 'median before ' + ', '.join(medians))}"
    picture = _bins(error["bins"], name, unit)
    return f"<figure><figcaption>{caption}</figcaption>{picture}</figure>"


def _amount(value: float, unit: str) -> str:
    return percent(value) if unit == "share" else f"{value:.2f} {unit}"


def _bins(bins: Sequence[dict[str, Any]], name: str, unit: str) -> str:
    inner = _HEIGHT - _TOP - _BOTTOM
    pitch = (_WIDTH - _LEFT - _RIGHT) / max(1, len(bins))
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = _TOP + inner * (1 - share)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="soft" x="{_LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">'
            f"{100 * share:.0f}%</text>"
        )
    parts += [_bin(_LEFT + pitch * place, pitch, part) for place, part in enumerate(bins)]
    edges = [part["low"] for part in bins] + [part["high"] for part in bins[-1:]]
    parts += [
        f'<text x="{_LEFT + pitch * place:.1f}" y="{_HEIGHT - 24}" text-anchor="middle">'
        f"{escape(_edge(edge, unit))}</text>"
        for place, edge in enumerate(edges)
    ]
    told = [
        f"{_edge(part['low'], unit)} to {_edge(part['high'], unit)}:"
        f" {percent((part['rate'] or {}).get('mean'))} of {part['n']}"
        for part in bins
    ]
    label = escape(f"Success by {name}. {'; '.join(told)}", quote=True)
    view = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}"'
    return f"<svg {view}>{''.join(parts)}</svg>"


def _bin(left: float, pitch: float, part: dict[str, Any]) -> str:
    """One bar with its interval and, below, how many it is the rate of."""
    inner, middle, wide = _HEIGHT - _TOP - _BOTTOM, left + pitch / 2, 0.62 * pitch
    count = (
        f'<text class="soft" x="{middle:.1f}" y="{_HEIGHT - 7}" text-anchor="middle">'
        f"n {part['n']}</text>"
    )
    rate = part["rate"] or {}
    if rate.get("mean") is None:
        return count
    mean, low, high = (_TOP + inner * (1 - rate[key]) for key in ("mean", "ci_low", "ci_high"))
    return (
        f'<rect class="bar" x="{middle - wide / 2:.1f}" y="{mean:.1f}" width="{wide:.1f}"'
        f' height="{inner * rate["mean"]:.1f}"/>'
        f'<line class="whisker" x1="{middle:.1f}" x2="{middle:.1f}" y1="{low:.1f}"'
        f' y2="{high:.1f}"/>'
        f'<circle class="dot" cx="{middle:.1f}" cy="{mean:.1f}" r="4"/>{count}'
    )


def _edge(value: float | None, unit: str) -> str:
    """The bound of a bin; the last one may have none."""
    if value is None:
        return "more"
    if unit == "share":
        return f"{100 * value:.0f}%"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}".rstrip("0").rstrip(".")


def _steps(steps: Sequence[dict[str, Any]]) -> str:
    rows = []
    for row in steps:
        significant = "▲ significant" if row.get("significant") else ""
        taxed = [percent(row.get("rate_isolated")), points(row.get("tax"))]
        taxed += [words.points_interval(row), words.probability(row.get("p_value"))]
        name = f"{row['index'] + 1}  {words.stage(row['from'])} -> {words.stage(row['to'])}"
        after = percent(row["rate_after_handoff"])
        rows.append([escape(name), str(row["n"]), after, *taxed, significant])
    heads = ["handoff", "#n", "#after it", "#isolated", "#tax, points", "#95% interval", "#p", ""]
    return blocks.table(heads, rows, "Every handoff of the plan")
