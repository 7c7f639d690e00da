"""Imitation learning: demonstrations and behaviour cloning."""
