"""How experience gets from environments into rollouts."""
