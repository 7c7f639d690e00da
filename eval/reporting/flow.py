"""How failures run: from what went wrong over the stage that broke to how the episode ended."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from eval.reporting import blocks, words
from eval.reporting.markup import Markup, fill, join
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


def section(report: dict[str, Any]) -> Markup | str:
    """The box with the picture and the same as a table, "" when there is nothing to show."""
    flow = report.get("flow")
    if not flow or not flow["edges"]:
        return ""
    picture = blocks.scrolling(_picture(flow), "Flow of failures")
    listed = blocks.folded("The same as a table", _table(flow))
    return blocks.section("How failures run", _NOTE, picture, listed)


def _picture(flow: dict[str, Any]) -> Markup:
    joined = {edge[side] for edge in flow["edges"] for side in ("from", "to")}
    nodes = _place([node for node in flow["nodes"] if node["id"] in joined], flow["edges"])
    bottom = max(node.top + max(node.height, _PITCH) for node in nodes.values())
    order = {name: place for place, name in enumerate(nodes)}
    edges = sorted(flow["edges"], key=lambda edge: (order[edge["from"]], order[edge["to"]]))
    bands = join(_band(nodes[edge["from"]], nodes[edge["to"]], edge["share"]) for edge in edges)
    marks = join(map(_mark, nodes.values()))
    label = "Flow from causes over stages to the ends of episodes; the table below has the figures"
    view = fill('viewBox="0 0 {} {:.0f}" role="img" aria-label="{}"', _WIDTH, bottom + 6, label)
    return fill('<svg class="flow" {}>{}{}</svg>', view, bands, marks)


def _place(records: Sequence[dict[str, Any]], edges: Sequence[dict[str, Any]]) -> dict[str, _Node]:
    """Stacks the bars of each column, in the order given, each as high as what runs through it."""
    into: dict[str, float] = {}
    out: dict[str, float] = {}
    for edge in edges:
        into[edge["to"]] = into.get(edge["to"], 0) + edge["share"]
        out[edge["from"]] = out.get(edge["from"], 0) + edge["share"]
    nodes: dict[str, _Node] = {}
    for kind in _COLUMNS:
        top = float(_TOP)
        for record in records:
            if record["kind"] != kind:
                continue
            name = record["id"]
            through = max(into.get(name, 0), out.get(name, 0))
            nodes[name] = _Node(record, top, max(2.0, _SCALE * through))
            top += max(nodes[name].height + 8, _PITCH)
    return nodes


def _band(start: _Node, end: _Node, share: float) -> Markup:
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
    shape = (
        f"M{x1} {y1:.1f} C{half} {y1:.1f} {half} {y2:.1f} {x2} {y2:.1f}"
        f" L{x2} {y2 + thick:.1f} C{half} {y2 + thick:.1f} {half} {y1 + thick:.1f}"
        f" {x1} {y1 + thick:.1f} Z"
    )
    return fill('<path class="{}" d="{}"><title>{}</title></path>', kind, shape, title)


def _mark(node: _Node) -> Markup:
    record = node.record
    kind = record["kind"]
    if kind == "end" and record["id"].endswith(_FINE):
        kind = "end fine"
    causing = kind == "cause"
    x = node.x - 8 if causing else node.x + _BAR + 8
    anchor = Markup(' text-anchor="end"') if causing else ""
    name, most = _name(record), _LONGEST if causing else len(_name(record))
    if len(name) > most:  # the table below has all of it
        name = f"{name[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
    text = f"{name} {percent(_share(node))}"
    y = node.top + max(node.height / 2, 6) + 4
    bar = '<rect class="{}" x="{}" y="{:.1f}" width="{}" height="{:.1f}"/>'
    return fill(
        '{}<text x="{}" y="{:.1f}"{}>{}</text>',
        fill(bar, kind, node.x, node.top, _BAR, node.height),
        x,
        y,
        anchor,
        text,
    )


def _share(node: _Node) -> float:
    share = node.record.get("share")
    return node.height / _SCALE if share is None else float(share)


def _name(record: dict[str, Any]) -> str:
    told = words.stage if record["kind"] == "stage" else words.cause
    return told(record["label"])


def _table(flow: dict[str, Any]) -> Markup:
    names = {node["id"]: _name(node) for node in flow["nodes"]}
    rows = [
        [names[edge["from"]], names[edge["to"]], percent(edge["share"])] for edge in flow["edges"]
    ]
    return blocks.table(["from", "to", "#of all episodes"], rows)
