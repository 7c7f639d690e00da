"""Suction cup: touches of an object, grasps, and placements."""
