"""Plays recordings: which moment is shown, and how fast time goes."""

import threading
from collections.abc import Sequence

from eval.viewing.recording import EpisodeRecording, Moment
from tpsrl.world.action import CONTROL_HZ


class Player:
    """The moment that is shown, by its index; recordings that are shorter stay at their end.

    Safe to use from several threads.
    """

    def __init__(self, recordings: Sequence[EpisodeRecording]) -> None:
        self._recordings = recordings
        self._lock = threading.Lock()
        self._at, self._playing, self._speed = 0.0, True, 1.0

    @property
    def index(self) -> int:
        """The moment that is shown."""
        with self._lock:
            return int(self._at)

    @property
    def playing(self) -> bool:
        """Whether time goes on."""
        with self._lock:
            return self._playing

    @property
    def last(self) -> int:
        """The last moment that there is so far."""
        return max(len(recording.moments) for recording in self._recordings) - 1

    def play(self, playing: bool) -> None:
        """Plays or pauses; what stands at its end is played from the beginning."""
        with self._lock:
            if playing and self._over() and int(self._at) >= self.last:
                self._at = 0.0
            self._playing = playing

    def set_speed(self, speed: float) -> None:
        """How many times as fast as the robot."""
        with self._lock:
            self._speed = speed

    def seek(self, index: int) -> None:
        """Shows a moment, or the nearest that there is."""
        with self._lock:
            self._at = float(min(max(index, 0), self.last))

    def step(self, moments: int) -> None:
        """Pauses, and goes on or back by some moments."""
        with self._lock:
            self._playing = False
            self._at = float(min(max(int(self._at) + moments, 0), self.last))

    def advance(self, seconds: float) -> None:
        """Lets time pass, where it does."""
        with self._lock:
            if not self._playing:
                return
            self._at = min(self._at + seconds * CONTROL_HZ * self._speed, float(self.last))
            if self._over() and self._at >= self.last:
                self._playing = False

    def moment(self, recording: EpisodeRecording) -> Moment:
        """What is shown of a recording."""
        return recording.moments[min(self.index, len(recording.moments) - 1)]

    def _over(self) -> bool:
        return all(recording.over.is_set() for recording in self._recordings)
