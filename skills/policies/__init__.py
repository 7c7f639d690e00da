"""Policies of skills other than scripted versions: learned networks, user classes, baselines."""
