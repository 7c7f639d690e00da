"""Where success is lost between what the skills can do and what the chain does, as a waterfall."""

import itertools
import operator
from collections.abc import Sequence
from typing import Any

from eval.reporting import bars, blocks, words
from eval.reporting.markup import Markup, fill
from eval.reporting.words import percent, points

_NOTE = """From the product of the rates that the skills have in isolation to the measured success,
part by part: the parts add up. A bar reaches from what was left before a part to what is left after
it; figures are percentage points of full success."""
_LEAST = 0.005  # of success: smaller parts share a row


def section(report: dict[str, Any]) -> Markup | str:
    """The box, "" where the product of isolated rates was not measured."""
    found = report.get("propagation") or {}
    if found.get("product_isolated") is None or found.get("parts") is None:
        return ""
    parts = found["parts"]
    content = [_waterfall(found, parts), blocks.paragraph(_sum(found))]
    if parts:
        content.append(blocks.folded("Every part", _table(parts)))
    return blocks.section("What the chain loses", _NOTE, *content)


def _sum(found: dict[str, Any]) -> str:
    isolated, measured = found["product_isolated"], found["measured"]
    text = f"{percent(isolated)} if nothing were lost between skills, {percent(measured)} measured"
    text += f": {points(measured - isolated)} points"
    conditional, residual = found.get("product_conditional"), found.get("residual")
    if conditional is not None and residual is not None:
        text += f". The product of the rates after each handoff is {percent(conditional)},"
        text += f" {points(residual)} points from what was measured"
    return f"{text}."


def _waterfall(found: dict[str, Any], parts: Sequence[dict[str, Any]]) -> Markup:
    """Totals are points, since the axis does not begin at 0; parts are bars between."""
    shown = [part for part in parts if abs(part["value"]) >= _LEAST]
    small = [part["value"] for part in parts if abs(part["value"]) < _LEAST]
    steps = [(_label(part), part["kind"], part["value"]) for part in shown]
    if small:
        steps.append((f"{len(small)} smaller parts", "other", sum(small)))
    values = [value for _, _, value in steps]
    left = list(itertools.accumulate(values, operator.sub, initial=found["product_isolated"]))
    levels = [*left, found["measured"]]
    axis = bars.around(levels)
    rows = [_total(axis, "product of the isolated rates", found["product_isolated"])]
    for (label, kind, value), (before, after) in zip(steps, itertools.pairwise(left), strict=True):
        picture = bars.bar(axis, before, after, kind)
        rows.append(bars.row(axis, label, picture, fill("<strong>{}</strong>", points(-value))))
    rows.append(_total(axis, "measured", found["measured"]))
    return bars.chart(axis, rows, "bars plain")


def _total(axis: bars.Axis, label: str, value: float) -> Markup:
    told = fill("<strong>{}</strong>", percent(value))
    return bars.row(axis, label, bars.point(axis, value), told)


def _label(part: dict[str, Any]) -> str:
    stage = part.get("stage")
    text = words.setback(part)
    return text if stage is None or stage < 0 else f"{stage + 1}  {text}"


def _table(parts: Sequence[dict[str, Any]]) -> Markup:
    rows = [
        [
            "" if part.get("stage") is None else str(part["stage"] + 1),
            words.loss(part["kind"]),
            words.steps(part),
            words.plain(part.get("skill") or ""),
            f"{100 * part['value']:+.2f}".replace("-", "\N{MINUS SIGN}"),
        ]
        for part in parts
    ]
    return blocks.table(["#stage", "what", "where", "skill", "#points lost"], rows, "Every part")
