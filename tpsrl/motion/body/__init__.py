"""Base and arm together: where to stand to reach a pose, and whether both can move at once."""
