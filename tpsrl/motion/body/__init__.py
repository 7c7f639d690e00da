"""Base and arm together: stances from which a pose is reached, and simultaneous motion."""
