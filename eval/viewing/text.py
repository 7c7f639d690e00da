"""Markdown texts of the viewer's panel."""

from eval.viewing.recording import EpisodeRecording, Moment, ShownCondition
from tpsrl.world.action import CONTROL_HZ

_AROUND = 3  # steps shown before and after the current one of a long plan
_LONG = 12


def title(recording: EpisodeRecording) -> str:
    """Returns agent, episode and outcome."""
    outcome = recording.outcome or "running"
    return f"**{recording.agent}** · {recording.episode.id} · {outcome}"


def status(moment: Moment) -> str:
    """Returns time, activity, held object or searched category, and force."""
    return (
        f"step {moment.step}, {moment.step / CONTROL_HZ:.1f} s · {moment.doing}  \n"
        f"{moment.occupation} · force {moment.force_n:.0f} N"
    )


def plan(recording: EpisodeRecording, moment: Moment) -> str:
    """Returns the plan with the current step in bold; of a long plan only the steps around it."""
    lines, now = [], moment.stage
    shown = range(len(recording.plan))
    if len(shown) > _LONG:
        first = min(max(now - _AROUND, 0), len(shown) - 2 * _AROUND - 1)
        shown = range(first, first + 2 * _AROUND + 1)
    if shown.start > 0:
        lines.append(f"*{shown.start} steps before*")
    for index in shown:
        line = f"{index + 1}\\. {_escaped(recording.plan[index])}"
        lines.append(f"**{line}**" if index == now else line)
    rest = len(recording.plan) - shown.stop
    if rest > 0:
        lines.append(f"*{rest} more*")
    return "  \n".join(lines)


def conditions(moment: Moment) -> str:
    """Returns the conditions of success with their margins."""
    found = list(moment.conditions)
    if moment.purpose is not None and moment.purpose not in found:
        found.insert(0, moment.purpose)
    return "  \n".join(map(_condition, found)) or "none yet"


def rewards(moment: Moment) -> str:
    """Returns a table of the nonzero terms of the step's reward."""
    terms = {name: value for name, value in moment.rewards.items() if value}
    total = sum(moment.rewards.values())
    rows = [f"| {name} | {value:+.3f} |" for name, value in {**terms, "sum": total}.items()]
    return "\n".join(["| term | reward |", "|---|---|", *rows])


def _condition(condition: ShownCondition) -> str:
    return f"{'✓' if condition.holds else '✗'} {_escaped(condition.text)}"


def _escaped(text: str) -> str:
    return text.replace("_", "\\_").replace("*", "\\*")
