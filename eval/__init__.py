"""Runs episodes of a scenario, measures what succeeded and says why the rest did not."""
