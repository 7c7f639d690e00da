"""tpsrl: train, chain and diagnose the skills of a home robot."""

from tpsrl import siblings

__version__ = "0.1.0"

if not siblings.is_command():
    siblings.check()
