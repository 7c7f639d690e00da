"""Videos on a page: the reel of failures by their cause, and those of whole episodes."""

from collections.abc import Sequence
from html import escape
from typing import Any

from eval.reporting import blocks, words

_REEL_NOTE = "Where episodes went wrong, the most frequent cause first."


def reel(report: dict[str, Any]) -> str:
    """The box with clips of failures grouped by cause, "" when there are none."""
    groups = [group for group in report.get("reel") or [] if group["clips"]]
    if not groups:
        return ""
    parts = [
        blocks.subheading(f"{words.cause(group['cause'])}: {_times(group['count'])}")
        + f'<div class="videos">{"".join(map(_clip, group["clips"]))}</div>'
        for group in groups
    ]
    return blocks.section("Failure reel", _REEL_NOTE, *parts)


def videos(records: Sequence[dict[str, Any]]) -> str:
    """The box with the videos of episodes, "" when there are none."""
    figures = [
        _figure(
            record["video"],
            None,
            f"episode {blocks.anchor(record['video'], record['id'])},"
            f" {blocks.outcome(record['success'])}",
        )
        for record in records
        if record.get("video")
    ]
    if not figures:
        return ""
    return blocks.section("Videos", "", f'<div class="videos">{"".join(figures)}</div>')


def _times(count: int) -> str:
    return "1 episode" if count == 1 else f"{count} episodes"


def _clip(clip: dict[str, Any]) -> str:
    caption = f"{blocks.anchor(clip['video'], clip['episode'])}: {escape(words.told(clip['text']))}"
    return _figure(clip["video"], clip.get("poster"), caption)


def _figure(video: str, poster: str | None, caption: str) -> str:
    """A video with its caption, which is HTML; a printed page has the poster in its place."""
    still = shown = ""
    if poster:
        still = f' poster="{blocks.url(poster)}"'
        shown = f'<img class="poster" src="{blocks.url(poster)}" alt=""/>'
    film = f'<video controls preload="metadata" src="{blocks.url(video)}"{still}></video>'
    return f"<figure>{film}{shown}<figcaption>{caption}</figcaption></figure>"
