"""tpsrl: train, chain and diagnose the skills of a home robot."""

__version__ = "0.1.0"
