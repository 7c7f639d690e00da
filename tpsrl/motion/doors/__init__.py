"""Doors and drawers: how to hold them, and how the base moves them."""
