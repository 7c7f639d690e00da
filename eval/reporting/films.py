"""Videos on a page: the reel of failures by their cause, and those of whole episodes."""

from collections.abc import Sequence
from typing import Any

from eval.reporting import blocks, words
from eval.reporting.markup import Markup, fill, join

_REEL_NOTE = "Where episodes went wrong, the most frequent cause first."


def reel(report: dict[str, Any]) -> Markup | str:
    """The box with clips of failures grouped by cause, "" when there are none."""
    groups = [group for group in report.get("reel") or [] if group["clips"]]
    if not groups:
        return ""
    parts = [
        fill(
            '{}<div class="videos">{}</div>',
            blocks.subheading(f"{words.cause(group['cause'])}: {_times(group['count'])}"),
            join(map(_clip, group["clips"])),
        )
        for group in groups
    ]
    return blocks.section("Failure reel", _REEL_NOTE, *parts)


def videos(records: Sequence[dict[str, Any]]) -> Markup | str:
    """The box with the videos of episodes, "" when there are none."""
    figures = [
        _figure(
            record["video"],
            None,
            fill(
                "episode {}, {}",
                blocks.anchor(record["video"], record["id"]),
                blocks.outcome(record["success"]),
            ),
        )
        for record in records
        if record.get("video")
    ]
    if not figures:
        return ""
    return blocks.section("Videos", "", fill('<div class="videos">{}</div>', join(figures)))


def _times(count: int) -> str:
    return "1 episode" if count == 1 else f"{count} episodes"


def _clip(clip: dict[str, Any]) -> Markup:
    named = blocks.anchor(clip["video"], clip["episode"])
    caption = fill("{}: {}", named, words.told(clip["text"]))
    return _figure(clip["video"], clip.get("poster"), caption)


def _figure(video: str, poster: str | None, caption: Markup) -> Markup:
    """A video with its caption; a printed page has the poster in its place."""
    still: Markup | str = ""
    shown: Markup | str = ""
    if poster:
        still = fill(' poster="{}"', blocks.url(poster))
        shown = fill('<img class="poster" src="{}" alt=""/>', blocks.url(poster))
    film = '<video controls preload="metadata" src="{}"{}></video>'
    return fill(
        "<figure>{}{}<figcaption>{}</figcaption></figure>",
        fill(film, blocks.url(video), still),
        shown,
        caption,
    )
