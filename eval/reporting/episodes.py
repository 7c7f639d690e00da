"""The table of episodes: how each went, what went wrong, and the command that runs it again."""

import shlex
from collections.abc import Sequence
from typing import Any

from eval.analysing.results import generic
from eval.reporting import blocks, words
from eval.reporting.markup import Markup, fill, join

_NOTE = """Forces are the largest of one contact, and the sum of its rises by more than 20 N; moved
is the clutter that ended more than 0.1 m from where it was. Where a skill ran out of steps, the
fourth column says what came with that ignored. A video ends where the episode does."""
_REPLAYED = "The command under an episode's name runs exactly that episode again and films it."
_HEADS = (
    "episode", "layout", "result", "timeouts ignored", "#goals", "#steps", "#peak", "#total",
    "#moved", "what went wrong first",
)  # fmt: skip


def section(report: dict[str, Any], records: Sequence[dict[str, Any]]) -> Markup:
    """The box with the table; `records` are those of episodes.jsonl."""
    command = report.get("settings_command")
    note = f"{_NOTE} {_REPLAYED}" if command else _NOTE
    rows = [_row(record, command) for record in records]
    return blocks.section("Episodes", note, blocks.table(_HEADS, rows, "Episodes"))


def replay_command(command: str, episode: str) -> str:
    """The command that runs one episode of an evaluation again, with a video, for a shell."""
    return f"{command} {shlex.quote(f'episode={episode}')} videos=1"


def _row(record: dict[str, Any], command: str | None) -> list[object]:
    name, moved = record["id"], record.get("clutter_moved")
    if record.get("video"):
        name = blocks.anchor(record["video"], record["id"])
    name = blocks.long_name(name)
    if command:
        again = blocks.code(replay_command(command, record["id"]))
        name = join((name, blocks.folded("run it again", again, "replay")))
    layout = record["layout"]
    place = blocks.long_name(blocks.named(layout.rpartition("/")[2], layout))
    return [
        name,
        place,
        blocks.outcome(record["success"]),
        _if_ignored(record.get("timeouts")),
        f"{record['goals_met']}/{record['goals']}",
        record["steps"],
        f"{record['force_peak_n'] / 1000:.2f} kN",
        f"{record['force_total_n'] / 1000:.1f} kN",
        "-" if moved is None else moved,
        what_went_wrong(record),
    ]


def _if_ignored(timeouts: dict[str, Any] | None) -> str:
    """What came with timeouts ignored, where that is another run of events."""
    if not timeouts or timeouts["first"] is None:
        return ""
    ignored = timeouts["ignored"]
    return "not run" if ignored is None else "success" if ignored["success"] else "failed"


def what_went_wrong(record: dict[str, Any]) -> Markup | str:
    """The first cause of a record, with who set it up; "" when nothing went wrong."""
    cause = record.get("first_cause")
    if cause is None:
        return ""
    stage = "" if cause["stage"] < 0 else f"{cause['stage'] + 1}  {words.stage(cause['name'])}: "
    lines = [stage + words.reason(cause["reason"])]
    told = record.get("cause_text")
    if told:
        lines.append(words.told(told))
    else:
        margin = words.signed(cause["margin"], cause["unit"])
        lines.append(f"{words.fact(generic(cause['predicate']))} {margin}".strip())
    if record.get("set_up_by"):
        lines.append(f"set up by {words.plain(record['set_up_by'])}")
    small = (fill("<small>{}</small>", line) for line in lines[1:])
    return join([lines[0], *small], "<br/>")
