"""Execution of evaluations in worker processes: scenarios, isolated skills, videos."""
