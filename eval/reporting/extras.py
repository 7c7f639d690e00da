"""How timeouts, clutter and blocked views read; a report written before may have none of them."""

from typing import Any

from eval.reporting import acting
from eval.reporting.words import percent


def lines(report: dict[str, Any]) -> list[str]:
    """A line of text for each that the report has."""
    texts = (_timeouts(report), _clutter(report), _view(report))
    return [*(text for text in texts if text), *acting.lines(report)]


def _timeouts(report: dict[str, Any]) -> str:
    found = report.get("timeouts")
    if not found:
        return ""
    count = f"{found['episodes']} of {report['num_episodes']}"
    both = f"timeouts ending {ending(report)}, ignored {ignored(report)}"
    return f"{both}; skills ran out of steps in {count} episodes"


def _clutter(report: dict[str, Any]) -> str:
    found = report.get("clutter_moved")
    if not found:
        return ""
    count = f"{found['mean']:.2f} of {found['objects']:.0f}"
    return f"clutter moved by over 0.1 m: {count} on average, none in {percent(found['none'])}"


def _view(report: dict[str, Any]) -> str:
    found = report.get("view_blocked")
    return f"view blocked in {percent(found['mean'])} of looks while holding" if found else ""


def figures(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Those of clutter and view for the head of a page: value, and what it is."""
    moved, view = report.get("clutter_moved"), report.get("view_blocked")
    found = []
    if moved:
        text = f"clutter moved by over 0.1 m, mean; none in {percent(moved['none'])}"
        found.append((f"{moved['mean']:.2f} of {moved['objects']:.0f}", text))
    if view:
        found.append((percent(view["mean"]), "of looks while holding blocked"))
    return found


def ending(report: dict[str, Any]) -> str:
    """Success with timeouts ending the episode."""
    found = report.get("timeouts")
    return percent(found["ending"]["mean"] if found else None)


def ignored(report: dict[str, Any]) -> str:
    """Success with timeouts ignored."""
    found = report.get("timeouts")
    rate = found and found["ignored"]
    return percent(rate["mean"] if rate else None)
