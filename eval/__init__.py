"""Runs episodes of a scenario, measures what succeeded and says why the rest did not."""

import tpsrl  # noqa: F401  (names the new module where an old one is imported)
