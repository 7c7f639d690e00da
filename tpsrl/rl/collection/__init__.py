"""Collection of experience from environments into rollouts."""
