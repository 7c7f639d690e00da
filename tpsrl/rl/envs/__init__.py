"""Vectorised environments for learners, in the calling process or in worker processes."""
