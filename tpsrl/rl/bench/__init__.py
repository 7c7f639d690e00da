"""Benchmarks of collectors, and environments for them."""
