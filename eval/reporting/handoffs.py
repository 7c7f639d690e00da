"""What handoffs cost: from skill to skill, by how far off the second one starts, step by step."""

from collections.abc import Sequence
from typing import Any

from eval.reporting import blocks, words
from eval.reporting.markup import Markup, fill, join
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


def section(report: dict[str, Any]) -> Markup | str:
    """The box with all that the report says of handoffs, "" when it has none."""
    matrix, steps = report.get("handoff_matrix") or [], report.get("handoffs") or []
    if not matrix and not steps:
        return ""
    if not matrix:
        listed = _steps(steps)
        return blocks.section("Handoffs", _UNMEASURED, blocks.folded("Every handoff", listed))
    parts: list[Markup | str] = [
        blocks.paragraph(text, "note") for text in _how(report.get("analysis"))
    ]
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


def _matrix(matrix: Sequence[dict[str, Any]]) -> Markup:
    cells = {(row["from"], row["to"]): row for row in matrix}
    befores = list(dict.fromkeys(row["from"] for row in matrix))
    afters = list(dict.fromkeys(row["to"] for row in matrix))
    head = join(fill('<th scope="col">to {}</th>', words.plain(name)) for name in afters)
    rows = [
        fill(
            '<tr><th scope="row">from {}</th>{}</tr>',
            words.plain(before),
            join(_cell(cells.get((before, after))) for after in afters),
        )
        for before in befores
    ]
    return fill(
        '<table class="matrix"><thead><tr><td></td>{}</tr></thead><tbody>{}</tbody></table>',
        head,
        join(rows),
    )


def _cell(row: dict[str, Any] | None) -> Markup:
    if row is None:
        return fill('<td class="none">does not occur</td>')
    after, isolated, tax = row.get("after") or {}, row.get("isolated") or {}, row.get("tax")
    lines: list[Markup | str] = [
        fill("<b>{}</b> after the handoff", percent(after.get("mean"))),
        f"{percent(isolated.get('mean'))} isolated",
    ]
    if tax is None:
        lines.append("tax not measured")
    else:
        sure = words.points_interval(row)
        lines.append(fill("tax <strong>{}</strong> ({})", points(tax), sure))
    lines.append(blocks.span("soft", _count(row)))
    significant = bool(row.get("significant"))
    if significant:
        lines.append(fill("<strong>▲ significant</strong>"))
    kind = Markup(' class="significant"') if significant else ""
    return fill("<td{}{}>{}</td>", kind, _shade(tax), join(lines, "<br/>"))


def _count(row: dict[str, Any]) -> str:
    p = row.get("p_value")
    return f"n = {row['n']}" if p is None else f"n = {row['n']}, p {words.probability(p)}"


def _shade(tax: float | None) -> Markup | str:
    """Orange for what a handoff costs, blue for what it brings, deeper for more."""
    if not tax:
        return ""
    colour = "230, 159, 0" if tax > 0 else "86, 180, 233"
    deep = min(0.5, 0.06 + 1.6 * abs(tax))
    return fill(' style="background: rgba({}, {:.2f})"', colour, deep)


def _errors(matrix: Sequence[dict[str, Any]]) -> Markup | str:
    groups = [
        fill(
            '{}<div class="small-charts">{}</div>',
            blocks.subheading(f"How far off: {words.link(row)}"),
            join(map(_error, row["errors"])),
        )
        for row in matrix
        if row.get("errors")
    ]
    if not groups:
        return ""
    return join((blocks.paragraph(_ERRORS_NOTE, "note"), *groups))


def _error(error: dict[str, Any]) -> Markup:
    name, unit = words.dimension(error["dimension"]), error["unit"]
    medians = [
        f"{text} {_amount(error[key], unit)}"
        for key, text in (
            ("median_before_success", "success"),
            ("median_before_failure", "failure"),
        )
        if error.get(key) is not None
    ]
    caption = fill("<strong>{}</strong>{}", name, f", {unit}" if unit != "share" else "")
    if medians:
        told = blocks.span("soft", f"median before {', '.join(medians)}")
        caption = fill("{}<br/>{}", caption, told)
    picture = _bins(error["bins"], name, unit)
    return fill("<figure><figcaption>{}</figcaption>{}</figure>", caption, picture)


def _amount(value: float, unit: str) -> str:
    return percent(value) if unit == "share" else f"{value:.2f} {unit}"


def _bins(bins: Sequence[dict[str, Any]], name: str, unit: str) -> Markup:
    inner = _HEIGHT - _TOP - _BOTTOM
    pitch = (_WIDTH - _LEFT - _RIGHT) / max(1, len(bins))
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = _TOP + inner * (1 - share)
        parts.append(
            fill(
                '<line class="grid" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/>'
                '<text class="soft" x="{3}" y="{4:.1f}" text-anchor="end">{5:.0f}%</text>',
                *(_LEFT, _WIDTH - _RIGHT, y, _LEFT - 5, y + 4, 100 * share),
            )
        )
    parts += [_bin(_LEFT + pitch * place, pitch, part) for place, part in enumerate(bins)]
    edges = [part["low"] for part in bins] + [part["high"] for part in bins[-1:]]
    parts += [
        fill(
            '<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>',
            _LEFT + pitch * place,
            _HEIGHT - 24,
            _edge(edge, unit),
        )
        for place, edge in enumerate(edges)
    ]
    told = [
        f"{_edge(part['low'], unit)} to {_edge(part['high'], unit)}:"
        f" {percent((part['rate'] or {}).get('mean'))} of {part['n']}"
        for part in bins
    ]
    label = f"Success by {name}. {'; '.join(told)}"
    view = fill('viewBox="0 0 {} {}" role="img" aria-label="{}"', _WIDTH, _HEIGHT, label)
    return fill("<svg {}>{}</svg>", view, join(parts))


def _bin(left: float, pitch: float, part: dict[str, Any]) -> Markup:
    """One bar with its interval and, below, how many it is the rate of."""
    inner, middle, wide = _HEIGHT - _TOP - _BOTTOM, left + pitch / 2, 0.62 * pitch
    count = fill(
        '<text class="soft" x="{:.1f}" y="{}" text-anchor="middle">n {}</text>',
        middle,
        _HEIGHT - 7,
        part["n"],
    )
    rate = part["rate"] or {}
    if rate.get("mean") is None:
        return count
    mean, low, high = (_TOP + inner * (1 - rate[key]) for key in ("mean", "ci_low", "ci_high"))
    bar = '<rect class="bar" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>'
    line = '<line class="whisker" x1="{0:.1f}" x2="{0:.1f}" y1="{1:.1f}" y2="{2:.1f}"/>'
    return fill(
        '{}{}<circle class="dot" cx="{:.1f}" cy="{:.1f}" r="4"/>{}',
        fill(bar, middle - wide / 2, mean, wide, inner * rate["mean"]),
        fill(line, middle, low, high),
        middle,
        mean,
        count,
    )


def _edge(value: float | None, unit: str) -> str:
    """The bound of a bin; the last one may have none."""
    if value is None:
        return "more"
    if unit == "share":
        return f"{100 * value:.0f}%"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}".rstrip("0").rstrip(".")


def _steps(steps: Sequence[dict[str, Any]]) -> Markup:
    rows = []
    for row in steps:
        significant = "▲ significant" if row.get("significant") else ""
        taxed = [percent(row.get("rate_isolated")), points(row.get("tax"))]
        taxed += [words.points_interval(row), words.probability(row.get("p_value"))]
        name = f"{row['index'] + 1}  {words.stage(row['from'])} -> {words.stage(row['to'])}"
        after = percent(row["rate_after_handoff"])
        rows.append([name, row["n"], after, *taxed, significant])
    heads = ["handoff", "#n", "#after it", "#isolated", "#tax, points", "#95% interval", "#p", ""]
    return blocks.table(heads, rows, "Every handoff of the plan")
