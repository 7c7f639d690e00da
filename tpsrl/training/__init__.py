"""Trainings as started by the commands and the Python API: settings, checks and the run."""
