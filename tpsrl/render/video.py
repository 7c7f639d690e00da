"""Video frames of an episode, and the mp4 files that hold them."""

import contextlib
import dataclasses
import functools
import math
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import imageio.v2 as imageio
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from tpsrl.errors import UserError
from tpsrl.runtime import files

_GREEN, _RED = (112, 219, 138), (255, 122, 110)
_WHITE, _GREY = (240, 242, 245), (158, 166, 178)
_DARK, _DARKER = (27, 31, 38), (18, 21, 26)
_MARGIN = 10
_TITLE_SIZE, _TEXT_SIZE, _SMALL_SIZE = 17, 14, 12
_BAR = 2 * _MARGIN + 2 * (_TITLE_SIZE + 6)  # height of title and results, pixels
_SCALE_M = (0.5, 1.0, 2.0, 4.0, 8.0)
# Colours of decreasing lightness, near to far (after matplotlib's viridis, CC0).
_DEPTH_COLOURS = np.array(
    [
        (253, 231, 37), (181, 222, 43), (110, 206, 88), (53, 183, 121), (31, 158, 137),
        (38, 130, 142), (49, 104, 142), (62, 73, 137), (72, 40, 120), (58, 4, 78), (24, 2, 34),
    ],
    dtype=np.float64,
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Caption:
    """Text of a frame.

    `title` is the plan step ("3/20 pick(003_cracker_box)"), `results` its predicates with their
    margins and whether they hold ("object_at: 0.12 m inside 0.30 m", True), `status` the lines
    beside the picture (steps, time, force), `legend` the entries of the line below them, each with
    the colour (0 to 1) of its dot, or None for no dot.
    """

    title: str = ""
    results: Sequence[tuple[str, bool]] = ()
    status: Sequence[str] = ()
    legend: Sequence[tuple[str, tuple[float, float, float] | None]] = ()


def colour_depth(depth: np.ndarray) -> np.ndarray:
    """Returns colours (h, w, 3) uint8 of normalised depth (h, w): yellow is near, dark is 10 m.

    Colours are linear in the square root of depth, so that half of them show the first 2.5 m.
    """
    return _depth_table()[(np.sqrt(np.clip(depth, 0.0, 1.0)) * 255.0).astype(np.uint8)]


@functools.cache
def _depth_table() -> np.ndarray:
    place = np.linspace(0, len(_DEPTH_COLOURS) - 1, 256)
    columns = [np.interp(place, np.arange(len(_DEPTH_COLOURS)), c) for c in _DEPTH_COLOURS.T]
    return np.rint(np.stack(columns, axis=1)).astype(np.uint8)


def compose_frame(third_person: np.ndarray, depth: np.ndarray, caption: Caption) -> np.ndarray:
    """Composes one frame: the third-person picture, head depth beside it, the caption below.

    Args:
        third_person: (H, W, 3) uint8.
        depth: (h, w) normalised head depth, 0 to 1.
        caption: the text; lines that are too long are cut with an ellipsis.

    Returns:
        (H', W', 3) uint8; both sides are even, as video encoders require, and depend only on the
        shape of `third_person`.
    """
    height, width = third_person.shape[:2]
    side = max(2 * _MARGIN + 16, 2 * height // 3)
    total = (width + side + (width + side) % 2, height + _BAR + (height + _BAR) % 2)
    frame = Image.new("RGB", total, _DARKER)
    frame.paste(Image.fromarray(third_person), (0, 0))
    panel = Image.fromarray(colour_depth(depth)).resize((side, side), Image.Resampling.NEAREST)
    frame.paste(panel, (width, 0))
    _draw_scale(frame, width, side)
    y = side + 24
    for line in caption.status:
        if y + _TEXT_SIZE > height:
            break
        _text(frame, (width + _MARGIN, y), line, _TEXT_SIZE, _WHITE, side - 2 * _MARGIN)
        y += _TEXT_SIZE + 5
    _draw_legend(frame, (width + _MARGIN, height - _SMALL_SIZE - 8), total[0], caption.legend)
    _draw_bar(frame, caption)
    return np.asarray(frame)


def with_caption(frame: np.ndarray, caption: Caption) -> np.ndarray:
    """Returns a frame of `compose_frame` with title and results of another caption."""
    changed = Image.fromarray(frame)
    _draw_bar(changed, caption)
    return np.asarray(changed)


def _draw_bar(frame: Image.Image, caption: Caption) -> None:
    """Draws title and results of a caption below the pictures."""
    width, height = frame.size
    draw = ImageDraw.Draw(frame)
    draw.rectangle((0, height - _BAR, width, height), fill=_DARK)
    y = height - _BAR + _MARGIN - 2
    _text(frame, (_MARGIN, y), caption.title, _TITLE_SIZE, _WHITE, width - 2 * _MARGIN)
    x, y = _MARGIN, y + _TITLE_SIZE + 8
    for text, holds in caption.results:
        room = width - _MARGIN - x - 14
        if room < 40:
            break
        colour = _GREEN if holds else _RED
        draw.ellipse((x, y + 5, x + 8, y + 13), fill=colour)
        x += 14 + _text(frame, (x + 14, y), text, _TEXT_SIZE, colour, room) + 18


def _draw_legend(
    frame: Image.Image,
    place: tuple[int, int],
    right: int,
    legend: Sequence[tuple[str, tuple[float, float, float] | None]],
) -> None:
    """Draws the legend in one line that ends before `right`."""
    x, y = place
    draw = ImageDraw.Draw(frame)
    for text, colour in legend:
        if colour is not None:
            red, green, blue = (round(255 * c) for c in colour)
            draw.ellipse((x, y + 3, x + 8, y + 11), fill=(red, green, blue))
            x += 12
        if x >= right - _MARGIN:
            return
        x += _text(frame, (x, y), text, _SMALL_SIZE, _GREY, right - _MARGIN - x) + 12


def _draw_scale(frame: Image.Image, left: int, side: int) -> None:
    """Draws the colour scale of the depth panel, in metres, just below the panel."""
    strip = np.repeat(_depth_table()[None, :, :], 5, axis=0)
    frame.paste(Image.fromarray(strip).resize((side, 5)), (left, side))
    for metres in _SCALE_M:
        x = left + side * float(np.sqrt(metres / 10.0))
        middle = _line(f"{metres:g}", _SMALL_SIZE, side).width // 2
        _text(frame, (round(x) - middle, side + 6), f"{metres:g}", _SMALL_SIZE, _GREY, side)
    _text(frame, (left + 4, side + 6), "m", _SMALL_SIZE, _GREY, side)


@functools.cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size=size)


def _text(
    frame: Image.Image,
    place: tuple[int, int],
    text: str,
    size: int,
    colour: tuple[int, int, int],
    room: int,
) -> int:
    """Draws a line of at most `room` pixels and returns its width."""
    line = _line(text, size, room)
    frame.paste(colour, place, line)
    return line.width


@functools.lru_cache(maxsize=256)
def _line(text: str, size: int, room: int) -> Image.Image:
    """Returns the opacity mask of a line of at most `room` pixels.

    The cache is useful because most lines are the same in the next frame.
    """
    font = _font(size)
    if font.getlength(text) > room:
        while text and font.getlength(text + "...") > room:
            text = text[:-1]
        text += "..."
    mask = Image.new("L", (math.ceil(font.getlength(text)), 2 * size))
    ImageDraw.Draw(mask).text((0, 0), text, 255, font)
    return mask


def encoder() -> str:
    """Returns the path of ffmpeg, which encodes videos.

    Raises:
        UserError: ffmpeg is missing or cannot be run.
    """
    import imageio_ffmpeg

    try:
        program: str = imageio_ffmpeg.get_ffmpeg_exe()
    except (OSError, RuntimeError):
        raise UserError(
            "videos: there is no video encoder (ffmpeg); reinstall imageio-ffmpeg, set "
            "IMAGEIO_FFMPEG_EXE to an existing program, or use videos=0"
        ) from None
    if shutil.which(program) is None:  # IMAGEIO_FFMPEG_EXE may be wrong
        raise UserError(f"videos: the encoder '{program}' cannot be run; set IMAGEIO_FFMPEG_EXE")
    return program


class VideoWriter:
    """Context manager that writes an mp4 (H.264, yuv420p).

    The file is written under a temporary name and renamed when it is complete; an exception inside
    the block removes it. Without frames there is no file.
    """

    def __init__(self, path: str | os.PathLike[str], fps: float = 30.0, every: int = 1) -> None:
        """Initialises the writer.

        Args:
            path: the file, ending in `.mp4`; its folder is created if necessary.
            fps: frames per second of playback.
            every: only every `every`-th call of `add` adds a frame, starting with the first. With
                one call per control step of 1/30 s, playback is in real time at fps = 30 / every.

        Raises:
            UserError: `path` does not end in `.mp4`, or fps or every is not positive.
        """
        self.path = Path(path)
        if self.path.suffix != ".mp4":
            raise UserError(f"video: '{path}' must end in .mp4")
        if fps <= 0 or every < 1:
            raise UserError(f"video: fps {fps} and every {every} must be positive")
        self.frames = 0
        self._fps, self._every, self._calls = fps, every, 0
        self._cleanup = contextlib.ExitStack()  # actions of `__exit__`
        self._temporary = self.path
        self._encoder: Any = None  # imageio's writer, from the first frame on
        self._shape: tuple[int, ...] = ()

    def __enter__(self) -> "VideoWriter":
        """Opens the temporary file.

        Raises:
            UserError: the folder cannot be written.
        """
        try:
            with contextlib.ExitStack() as cleanup:
                self._temporary = cleanup.enter_context(files.atomic(self.path, durable=True))
                self._temporary.touch()
                cleanup.callback(self._complete)
                self._cleanup = cleanup.pop_all()
        except OSError as error:
            raise UserError(f"video: cannot write {self.path}: {error.strerror}") from None
        return self

    def add(self, frame: np.ndarray | Callable[[], np.ndarray]) -> None:
        """Adds a frame (H, W, 3) uint8; both sides are even and the same for all frames.

        A function is called only if its frame is used, which saves rendering the other frames.

        Raises:
            UserError: the encoder cannot write.
        """
        wanted = self._calls % self._every == 0
        self._calls += 1
        if not wanted:
            return
        self._append(frame() if callable(frame) else frame)

    def hold(self, frame: np.ndarray, seconds: float) -> None:
        """Adds a frame that is shown for some seconds, whatever `every` is.

        Raises:
            UserError: the encoder cannot write.
        """
        for _ in range(max(1, round(seconds * self._fps))):
            self._append(frame)

    def _append(self, picture: np.ndarray) -> None:
        if self._encoder is None:
            self._open(picture)
        if picture.shape != self._shape or picture.dtype != np.uint8:
            raise ValueError(f"frame {picture.shape} {picture.dtype} after {self._shape} uint8")
        try:
            self._encoder.append_data(picture)
        except OSError as error:
            raise UserError(f"video: cannot write {self.path}: {_first_line(error)}") from None
        self.frames += 1

    def _open(self, picture: np.ndarray) -> None:
        height, width, channels = picture.shape
        if height % 2 or width % 2 or channels != 3:
            raise ValueError(f"frame {picture.shape} needs even sides and three channels")
        self._shape = picture.shape
        self._encoder = imageio.get_writer(
            self._temporary,
            format="FFMPEG",
            mode="I",
            fps=self._fps,
            codec="libx264",
            pixelformat="yuv420p",
            quality=None,
            macro_block_size=2,
            ffmpeg_log_level="quiet",  # errors are detected from the file
            output_params=["-crf", "24", "-preset", "veryfast", "-movflags", "+faststart"],
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._cleanup.__exit__(kind, error, trace)
        except OSError as problem:
            raise UserError(f"video: cannot write {self.path}: {_first_line(problem)}") from None

    def _complete(self) -> None:
        """Completes the video under the temporary name, or removes it if there are no frames."""
        if self._encoder is not None:
            self._encoder.close()
            if not _is_whole(self._temporary):  # imageio hides the exit code
                raise OSError("the encoder ended too early; is the disk full?")
        if not self.frames:
            self._temporary.unlink()


def _is_whole(path: Path) -> bool:
    """Returns whether an mp4 file has its index and complete boxes (ISO 14496-12, 4.2)."""
    size, at, kinds = path.stat().st_size, 0, set()
    with path.open("rb") as file:
        while at < size:
            file.seek(at)
            head = file.read(16)
            length, kind = int.from_bytes(head[:4], "big"), head[4:8]
            length = int.from_bytes(head[8:], "big") if length == 1 else length
            if length < 8:
                return False
            kinds.add(kind)
            at += length
    return at == size and {b"moov", b"mdat"} <= kinds


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
