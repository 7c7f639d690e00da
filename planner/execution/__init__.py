"""Execution of plans, and the trace of each episode."""
