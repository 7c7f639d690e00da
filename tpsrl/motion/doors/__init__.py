"""Doors and drawers: holds for the cup, and motion by the base."""
