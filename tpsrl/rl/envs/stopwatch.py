"""Stopwatch for code blocks."""

import time
from types import TracebackType


class Stopwatch:
    """Adds up the seconds spent inside `with` blocks."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._begun = 0.0

    def __enter__(self) -> "Stopwatch":
        self._begun = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.seconds += time.perf_counter() - self._begun
