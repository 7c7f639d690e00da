"""Handoff analysis: where a chain of skills breaks, why, and what would mend it."""
