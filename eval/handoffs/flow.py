"""Flow of failures: from first causes through the failed step to the end of the episode."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eval.analysing.results import EpisodeResult, generic
from eval.analysing.schema import Flow, FlowEdge, FlowNode
from planner.execution.trace import Cause
from tpsrl.runtime import files

FAILED, SUCCEEDED = "end:failed", "end:succeeded"


def flow(results: Sequence[EpisodeResult]) -> Any:
    """Returns a `networkx.DiGraph` over all episodes.

    Nodes have "kind" ("cause", "stage" or "end"), "label" and "share" of all episodes; edges have
    "share". A failure flows from its cause (the missing predicate, or the skill that set the failed
    one up) to the step in which it happened and to "end:failed"; other episodes flow from "start"
    to "end:succeeded".
    """
    import networkx as nx

    graph = nx.DiGraph()
    one = 1.0 / len(results)

    def add(node: str, kind: str, label: str) -> None:
        if node not in graph:
            graph.add_node(node, kind=kind, label=label, share=0.0)
        graph.nodes[node]["share"] += one

    def join(first: str, second: str) -> None:
        if not graph.has_edge(first, second):
            graph.add_edge(first, second, share=0.0)
        graph.edges[first, second]["share"] += one

    for result in results:
        cause = result.first_cause
        if cause is None:
            add("start", "stage", "all steps")
            add(SUCCEEDED, "end", "succeeded")
            join("start", SUCCEEDED)
            continue
        origin, what, by = of_cause(cause, result.set_up_by)
        where = f"stage:{cause.stage}"
        add(origin, "cause", f"{what}, {by}")
        add(where, "stage", f"{cause.stage + 1} {cause.name}" if cause.stage >= 0 else "at the end")
        add(FAILED, "end", "failed")
        join(origin, where)
        join(where, FAILED)
    return graph


def of_cause(cause: Cause, set_up_by: str | None) -> tuple[str, str, str]:
    """Returns the node of a first cause: its id, the missing predicate, and the reason."""
    what, by = generic(cause.predicate), f"set up by {set_up_by}" if set_up_by else cause.reason
    return f"cause:{cause.skill}:{what}:{by}", what, by


def as_rows(graph: Any) -> Flow:
    """Returns nodes and edges, the largest share first."""
    nodes = [FlowNode(id=name, **data) for name, data in graph.nodes(data=True)]
    edges = [FlowEdge(from_=a, to=b, **data) for a, b, data in graph.edges(data=True)]
    return Flow(
        sorted(nodes, key=lambda node: (-node.share, node.id)),
        sorted(edges, key=lambda edge: (-edge.share, edge.from_, edge.to)),
    )


def write_graphml(graph: Any, path: Path) -> None:
    """Writes the graph in the GraphML format, for other programs.

    Raises:
        UserError: the file cannot be written.
    """
    import networkx as nx

    files.write_text(path, "\n".join(nx.generate_graphml(graph)) + "\n")
