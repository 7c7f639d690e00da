"""Environments of skills: batches of homes, gymnasium, training, map sensors."""
