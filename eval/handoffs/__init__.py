"""Handoff analysis: where a chain of skills breaks, why, and which repairs would help."""
