"""Playback of recordings: current moment and speed."""

import threading
from collections.abc import Sequence

from eval.viewing.recording import EpisodeRecording, Moment
from tpsrl.world.action import CONTROL_HZ


class Player:
    """Index of the current moment; shorter recordings stay at their last one.

    Thread-safe.
    """

    def __init__(self, recordings: Sequence[EpisodeRecording]) -> None:
        self._recordings = recordings
        self._lock = threading.Lock()
        self._at, self._playing, self._speed = 0.0, True, 1.0

    @property
    def index(self) -> int:
        """Index of the current moment."""
        with self._lock:
            return int(self._at)

    @property
    def playing(self) -> bool:
        """Whether playback is running."""
        with self._lock:
            return self._playing

    @property
    def last(self) -> int:
        """Index of the last moment recorded so far."""
        return max(len(recording.moments) for recording in self._recordings) - 1

    def play(self, playing: bool) -> None:
        """Starts or pauses playback; at the end of finished recordings it starts over."""
        with self._lock:
            if playing and self._over() and int(self._at) >= self.last:
                self._at = 0.0
            self._playing = playing

    def set_speed(self, speed: float) -> None:
        """Sets the speed, as a multiple of real time."""
        with self._lock:
            self._speed = speed

    def seek(self, index: int) -> None:
        """Shows a moment, or the nearest one recorded."""
        with self._lock:
            self._at = float(min(max(index, 0), self.last))

    def step(self, moments: int) -> None:
        """Pauses, and moves by a number of moments, which may be negative."""
        with self._lock:
            self._playing = False
            self._at = float(min(max(int(self._at) + moments, 0), self.last))

    def advance(self, seconds: float) -> None:
        """Advances playback by a duration (s), unless it is paused."""
        with self._lock:
            if not self._playing:
                return
            self._at = min(self._at + seconds * CONTROL_HZ * self._speed, float(self.last))
            if self._over() and self._at >= self.last:
                self._playing = False

    def moment(self, recording: EpisodeRecording) -> Moment:
        """Returns the current moment of a recording."""
        return recording.moments[min(self.index, len(recording.moments) - 1)]

    def _over(self) -> bool:
        return all(recording.over.is_set() for recording in self._recordings)
