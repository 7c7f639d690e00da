"""The picture of how failures run: from what went wrong over the stage that broke to the end."""

import dataclasses
from collections.abc import Mapping, Sequence

from eval.analysing.results import EpisodeResult
from eval.analysing.schema import Flow, FlowEdge, FlowNode
from eval.handoffs.flow import SUCCEEDED, of_cause
from eval.reporting import words
from eval.reporting.words import percent

WIDTH, BAR = 960, 14  # pixels
_SCALE, _TOP = 420, 8  # pixels; the scale is that of all episodes
_PITCH = 24  # pixels from one name to the next, at least
_COLUMNS = {"cause": 330, "stage": 580, "end": 820}  # where the bars of a kind stand
_LONGEST = 40  # letters of a cause, beside the share, that there is room for


@dataclasses.dataclass(slots=True)
class FlowBar:
    """A node as a bar, and how much of its left and right side is taken already, in pixels."""

    node: FlowNode
    name: str
    top: float
    height: float
    left: float = 0.0
    right: float = 0.0

    @property
    def x(self) -> int:
        """The left edge."""
        return _COLUMNS[self.node.kind]

    @property
    def label(self) -> str:
        """The name, shortened where the table has all of it, and the share."""
        most = _LONGEST if self.node.kind == "cause" else len(self.name)
        cut = len(self.name) > most
        name = f"{self.name[: most - 1]}\N{HORIZONTAL ELLIPSIS}" if cut else self.name
        return f"{name} {percent(self.node.share)}"


@dataclasses.dataclass(frozen=True, slots=True)
class FlowBand:
    """An edge as a band: the classes of its style, its outline, and what it says."""

    kind: str
    outline: str
    title: str


@dataclasses.dataclass(frozen=True, slots=True)
class FlowPicture:
    """The picture; `rows` are the same as a table, the nodes by their names."""

    height: float
    bars: list[FlowBar]
    bands: list[FlowBand]
    rows: list[tuple[str, str, float]]


def picture(flow: Flow | None, results: Sequence[EpisodeResult]) -> FlowPicture | None:
    """The picture of a flow, None where there is nothing to show.

    Causes are named by the first causes of the results; one that none of them has is named by the
    text of its node.
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
    """Stacks the bars of each column, in the order given, each as high as what runs through it."""
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
