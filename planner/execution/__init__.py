"""Carries plans out, and records what happened."""
