"""Image above the slider: stages of the plan in colours, the first cause in red."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from eval.viewing.recording import EpisodeRecording

WIDTH, ROW = 720, 26
_COLOURS = ((76, 120, 168), (114, 183, 178), (178, 121, 162), (238, 202, 59), (157, 117, 93))
_EMPTY, _RED, _NOW, _TEXT = (233, 236, 239), (214, 39, 40), (20, 20, 20), (255, 255, 255)
_LABEL_PX = 16  # smallest width of a segment with a number
_CAUSE = "first cause"


def picture(recordings: Sequence[EpisodeRecording], last: int, now: int) -> np.ndarray:
    """Returns the image (rows, width, 3) uint8, with a row for each recording.

    `last` is the index of the moment at the right edge, `now` that of the current one.
    """
    image = Image.new("RGB", (WIDTH, ROW * len(recordings)), _EMPTY)
    draw = ImageDraw.Draw(image)
    scale = (WIDTH - 1) / max(last, 1)
    for row, recording in enumerate(recordings):
        top, bottom = row * ROW, (row + 1) * ROW - 3
        for first, after, stage in segments(recording):
            left, right = first * scale, after * scale
            draw.rectangle((left, top, right, bottom), fill=_COLOURS[stage % len(_COLOURS)])
            if right - left >= _LABEL_PX:
                place = ((left + right) / 2, (top + bottom) / 2)
                draw.text(place, str(stage + 1), fill=_TEXT, anchor="mm")
        for mark in list(recording.marks):
            if mark.text.startswith(_CAUSE):
                x = mark.moment * scale
                draw.rectangle((x - 2, top, x + 2, bottom), fill=_RED)
    draw.line((now * scale, 0, now * scale, ROW * len(recordings)), fill=_NOW, width=2)
    return np.asarray(image)


def segments(recording: EpisodeRecording) -> list[tuple[int, int, int]]:
    """Splits a recording into runs of plan steps.

    Returns:
        For each run its first moment, the moment after its last, and the index of the plan's step.
    """
    found: list[tuple[int, int, int]] = []
    stages = [moment.stage for moment in list(recording.moments)]
    for index, stage in enumerate(stages):
        if stage < 0:
            continue
        if found and found[-1][2] == stage and found[-1][1] == index:
            found[-1] = (found[-1][0], index + 1, stage)
        else:
            found.append((index, index + 1, stage))
    return found
