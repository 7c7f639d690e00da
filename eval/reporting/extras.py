"""Texts on timeouts, clutter and blocked views, which reports of earlier versions may lack."""

from msgspec import UNSET, UnsetType

from eval.analysing.schema import Index, IndexRow, Report, SkillReport
from eval.reporting import acting
from eval.reporting.words import percent
from tpsrl.errors import one_line


def lines(report: Report | SkillReport) -> list[str]:
    """Returns a line of text for each of these entries that the report has."""
    texts = lost(report)
    if isinstance(report, Report):
        texts += [*notes(report), _timeouts(report), _clutter(report)]
    if report.view_blocked:
        share = percent(report.view_blocked.mean)
        texts.append(f"view blocked in {share} of measurements while holding")
    return [*(text for text in texts if text), *acting.lines(report)]


def notes(report: Report) -> list[str]:
    """Returns lines on domain and episodes that are needed to interpret the success rate."""
    found = []
    if report.domain:
        found.append(f"planning domain: {report.domain}")
    if report.plan:
        found.append(f"plan from file: {report.plan}")
    if solved := report.solved_at_start:
        rest = f"{percent(solved.others.mean)} of the others" if solved.others else "no others"
        count = f"{solved.episodes} of {report.num_episodes} episodes"
        found.append(f"goals already reached at the start of {count}; success {rest}")
    if report.left_out:
        others = "; ".join(f"{count} of {what}" for what, count in report.left_out.items())
        found.append(f"episodes of the file left out: {others}")
    if report.invalid:
        found.append(f"invalid episodes left out: {', '.join(report.invalid)}")
    return found


def lost(report: Report | SkillReport) -> list[str]:
    """Returns a line with the number of lost episodes and one for each; [] if there are none."""
    found = report.lost or []
    if not found:
        return []
    heading = f"lost and not counted: {len(found)} of {report.num_episodes + len(found)} episodes"
    return [heading, *(one_line(f"lost {one.episode}: {one.cause}") for one in found)]


def number_lost(report: Report | SkillReport) -> int | UnsetType:
    """Returns the number of lost episodes, UNSET if there are none."""
    return len(report.lost) if report.lost else UNSET


def all_lost(report: Index) -> str:
    """Returns the number of lost episodes of each evaluation as text, "" if there are none."""
    found = [f"{row.name} {row.lost}" for row in report.runs if row.lost]
    return f"episodes lost and not counted: {', '.join(found)}" if found else ""


def _timeouts(report: Report) -> str:
    if not report.timeouts:
        return ""
    count = f"{report.timeouts.episodes} of {report.num_episodes}"
    both = f"timeouts ending {ending(report)}, ignored {ignored(report)}"
    return f"{both}; skills ran out of steps or could not start in {count} episodes"


def _clutter(report: Report) -> str:
    found = report.clutter_moved
    if not found:
        return ""
    count = f"{found.mean:.2f} of {found.objects:.0f}"
    return f"clutter moved by over 0.1 m: {count} on average, none in {percent(found.none)}"


def figures(report: Report | SkillReport) -> list[tuple[str, str]]:
    """Returns value and label of the figures on clutter and view, for the head of a page."""
    moved = report.clutter_moved if isinstance(report, Report) else None
    found = []
    if moved:
        text = f"clutter moved by over 0.1 m, mean; none in {percent(moved.none)}"
        found.append((f"{moved.mean:.2f} of {moved.objects:.0f}", text))
    if report.view_blocked:
        found.append((percent(report.view_blocked.mean), "of views blocked while holding"))
    return found


def ending(report: Report | IndexRow) -> str:
    """Returns success with timeouts ending the episode."""
    return percent(report.timeouts.ending.mean if report.timeouts else None)


def ignored(report: Report | IndexRow) -> str:
    """Returns success with timeouts ignored."""
    rate = report.timeouts.ignored if report.timeouts else None
    return percent(rate.mean if rate else None)
