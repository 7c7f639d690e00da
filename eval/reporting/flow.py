"""How failures run: from what went wrong over the stage that broke to how the episode ended."""

import dataclasses
from collections.abc import Sequence
from html import escape
from typing import Any

from eval.reporting import blocks, words
from eval.reporting.words import percent

_NOTE = """Shares of all episodes: what went wrong first, the stage at which the chain broke, and
how the episode ended."""
_WIDTH, _BAR, _SCALE, _TOP = 960, 14, 420, 8  # pixels; the scale is that of all episodes
_PITCH = 24  # pixels from one name to the next, at least
_COLUMNS = {"cause": 330, "stage": 580, "end": 820}  # where the bars of a kind stand
_LONGEST = 40  # letters of a cause, beside the share, that there is room for
_FINE = "succeeded"


@dataclasses.dataclass(slots=True)
class _Node:
    """One bar, and how much of its left and right side is taken already, in pixels."""

    record: dict[str, Any]
    top: float
    height: float
    left: float = 0.0
    right: float = 0.0

    @property
    def x(self) -> int:
        return _COLUMNS[self.record["kind"]]


def section(report: dict[str, Any]) -> str:
    """The box with the picture and the same as a table, "" when there is nothing to show."""
    flow = report.get("flow")
    if not flow or not flow["edges"]:
        return ""
    picture = blocks.scrolling(_picture(flow), "Flow of failures")
    listed = blocks.folded("The same as a table", _table(flow))
    return blocks.section("How failures run", _NOTE, picture, listed)


def _picture(flow: dict[str, Any]) -> str:
    joined = {edge[side] for edge in flow["edges"] for side in ("from", "to")}
    nodes = _place([node for node in flow["nodes"] if node["id"] in joined], flow["edges"])
    bottom = max(node.top + max(node.height, _PITCH) for node in nodes.values())
    order = {name: place for place, name in enumerate(nodes)}
    edges = sorted(flow["edges"], key=lambda edge: (order[edge["from"]], order[edge["to"]]))
    bands = "".join(_band(nodes[edge["from"]], nodes[edge["to"]], edge["share"]) for edge in edges)
    marks = "".join(map(_mark, nodes.values()))
    label = "Flow from causes over stages to the ends of episodes; the table below has the figures"
    view = f'viewBox="0 0 {_WIDTH} {bottom + 6:.0f}" role="img" aria-label="{label}"'
    return f'<svg class="flow" {view}>{bands}{marks}</svg>'


def _place(records: Sequence[dict[str, Any]], edges: Sequence[dict[str, Any]]) -> dict[str, _Node]:
    """Stacks the bars of each column, in the order given, each as high as what runs through it."""
    nodes: dict[str, _Node] = {}
    for kind in _COLUMNS:
        top = float(_TOP)
        for record in records:
            if record["kind"] != kind:
                continue
            name = record["id"]
            into = sum(edge["share"] for edge in edges if edge["to"] == name)
            out = sum(edge["share"] for edge in edges if edge["from"] == name)
            nodes[name] = _Node(record, top, max(2.0, _SCALE * max(into, out)))
            top += max(nodes[name].height + 8, _PITCH)
    return nodes


def _band(start: _Node, end: _Node, share: float) -> str:
    thick = _SCALE * share
    x1, x2 = start.x + _BAR, end.x
    y1, y2 = start.top + start.right, end.top + end.left
    start.right += thick
    end.left += thick
    half = (x1 + x2) / 2
    kind = "band" if start.record["kind"] == "cause" else "band over"
    if end.record["id"].endswith(_FINE):
        kind = "band through"
    title = f"{_name(start.record)} -> {_name(end.record)}: {percent(share)}"
    return (
        f'<path class="{kind}" d="M{x1} {y1:.1f} C{half} {y1:.1f} {half} {y2:.1f} {x2} {y2:.1f}'
        f" L{x2} {y2 + thick:.1f} C{half} {y2 + thick:.1f} {half} {y1 + thick:.1f}"
        f' {x1} {y1 + thick:.1f} Z"><title>{escape(title)}</title></path>'
    )


def _mark(node: _Node) -> str:
    record = node.record
    kind = record["kind"]
    if kind == "end" and record["id"].endswith(_FINE):
        kind = "end fine"
    causing = kind == "cause"
    x = node.x - 8 if causing else node.x + _BAR + 8
    anchor = ' text-anchor="end"' if causing else ""
    name, most = _name(record), _LONGEST if causing else len(_name(record))
    if len(name) > most:  # the table below has all of it
        name = f"{name[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
    text = f"{name} {percent(_share(node))}"
    y = node.top + max(node.height / 2, 6) + 4
    return (
        f'<rect class="{kind}" x="{node.x}" y="{node.top:.1f}" width="{_BAR}"'
        f' height="{node.height:.1f}"/>'
        f'<text x="{x}" y="{y:.1f}"{anchor}>{escape(text)}</text>'
    )


def _share(node: _Node) -> float:
    share = node.record.get("share")
    return node.height / _SCALE if share is None else float(share)


def _name(record: dict[str, Any]) -> str:
    told = words.stage if record["kind"] == "stage" else words.cause
    return told(record["label"])


def _table(flow: dict[str, Any]) -> str:
    names = {node["id"]: _name(node) for node in flow["nodes"]}
    rows = [
        [escape(names[edge["from"]]), escape(names[edge["to"]]), percent(edge["share"])]
        for edge in flow["edges"]
    ]
    return blocks.table(["from", "to", "#of all episodes"], rows)
