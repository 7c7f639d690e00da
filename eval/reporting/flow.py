"""Diagram of the flow of failures: from first causes through the failed stage to the end."""

import dataclasses
from collections.abc import Mapping, Sequence

from eval.analysing.results import EpisodeResult
from eval.analysing.schema import Flow, FlowEdge, FlowNode
from eval.handoffs.flow import SUCCEEDED, of_cause
from eval.reporting import words
from eval.reporting.words import percent

WIDTH, BAR = 990, 14  # pixels
_SCALE, _TOP = 420, 8  # pixels: height of all episodes, upper margin
_PITCH = 24  # minimum distance (pixels) of two names
_COLUMNS = {"cause": 360, "stage": 610, "end": 850}  # left edge of the bars of each kind
_LONGEST = 40  # characters of a cause's name that fit beside the share


@dataclasses.dataclass(slots=True)
class FlowBar:
    """A node as a bar; `left` and `right` are the occupied heights of its sides (pixels)."""

    node: FlowNode
    name: str
    top: float
    height: float
    left: float = 0.0
    right: float = 0.0

    @property
    def x(self) -> int:
        """Left edge."""
        return _COLUMNS[self.node.kind]

    @property
    def label(self) -> str:
        """Name and share; the name is shortened, the table has it in full."""
        most = _LONGEST if self.node.kind == "cause" else len(self.name)
        cut = len(self.name) > most
        name = f"{self.name[: most - 1]}\N{HORIZONTAL ELLIPSIS}" if cut else self.name
        return f"{name} {percent(self.node.share)}"


@dataclasses.dataclass(frozen=True, slots=True)
class FlowBand:
    """An edge as a band: its style classes, outline and title."""

    kind: str
    outline: str
    title: str


@dataclasses.dataclass(frozen=True, slots=True)
class FlowPicture:
    """The diagram; `rows` is the same as a table, with the names of the nodes."""

    height: float
    bars: list[FlowBar]
    bands: list[FlowBand]
    rows: list[tuple[str, str, float]]


def picture(flow: Flow | None, results: Sequence[EpisodeResult]) -> FlowPicture | None:
    """Returns the diagram of a flow, None if it has no edges.

    Causes are named after the first causes of the results. A cause that no result has is named by
    the label of its node.
    """
    if not flow or not flow.edges:
        return None
    named = _names(flow, results)
    bars = _place(flow, named)
    order = {name: place for place, name in enumerate(bars)}
    edges = sorted(flow.edges, key=lambda edge: (order[edge.from_], order[edge.to]))
    return FlowPicture(
        height=max(bar.top + max(bar.height, _PITCH) for bar in bars.values()) + 6,
        bars=list(bars.values()),
        bands=[_band(bars[edge.from_], bars[edge.to], edge) for edge in edges],
        rows=[(named[edge.from_], named[edge.to], edge.share) for edge in flow.edges],
    )


def _names(flow: Flow, results: Sequence[EpisodeResult]) -> dict[str, str]:
    causes = {}
    for result in results:
        if result.first_cause is not None:
            origin, *_ = of_cause(result.first_cause, result.set_up_by)
            culprit = result.set_up_by
            why = words.reason(result.first_cause.reason)
            why = f"set up by {words.plain(culprit)}" if culprit else why
            causes[origin] = f"{words.lacking(result.first_cause)}, {why}"
    return {
        node.id: words.stage(node.label)
        if node.kind == "stage"
        else causes.get(node.id, node.label)
        for node in flow.nodes
    }


def _place(flow: Flow, named: Mapping[str, str]) -> dict[str, FlowBar]:
    """Stacks the bars of each column, in the given order; heights are the shares of the flow."""
    into: dict[str, float] = {}
    out: dict[str, float] = {}
    for edge in flow.edges:
        into[edge.to] = into.get(edge.to, 0) + edge.share
        out[edge.from_] = out.get(edge.from_, 0) + edge.share
    bars: dict[str, FlowBar] = {}
    for kind in _COLUMNS:
        top = float(_TOP)
        for node in flow.nodes:
            through = max(into.get(node.id, 0), out.get(node.id, 0))
            if node.kind == kind and through:
                bars[node.id] = FlowBar(node, named[node.id], top, max(2.0, _SCALE * through))
                top += max(bars[node.id].height + 8, _PITCH)
    return bars


def _band(start: FlowBar, end: FlowBar, edge: FlowEdge) -> FlowBand:
    thick = _SCALE * edge.share
    x1, x2 = start.x + BAR, end.x
    y1, y2 = start.top + start.right, end.top + end.left
    start.right += thick
    end.left += thick
    half = (x1 + x2) / 2
    kind = "band" if start.node.kind == "cause" else "band over"
    if end.node.id == SUCCEEDED:
        kind = "band through"
    outline = (
        f"M{x1} {y1:.1f} C{half} {y1:.1f} {half} {y2:.1f} {x2} {y2:.1f}"
        f" L{x2} {y2 + thick:.1f} C{half} {y2 + thick:.1f} {half} {y1 + thick:.1f}"
        f" {x1} {y1 + thick:.1f} Z"
    )
    return FlowBand(kind, outline, f"{start.name} -> {end.name}: {percent(edge.share)}")
