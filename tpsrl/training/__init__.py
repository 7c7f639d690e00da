"""Trainings as the commands and the Python API start them: settings, checks, the run itself."""
