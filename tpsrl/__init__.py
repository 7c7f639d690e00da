"""tpsrl: train, chain and diagnose the skills of a home robot."""

from typing import TYPE_CHECKING, Any

from tpsrl.runtime import shadowing

if TYPE_CHECKING:
    from tpsrl.commands.api import evaluate, film, train

__version__ = "0.1.0"
__all__ = ["__version__", "evaluate", "film", "train"]

if not shadowing.is_command():
    shadowing.check()


def __getattr__(name: str) -> Any:
    """`tpsrl.evaluate`, `film` and `train`, imported when asked for: they need all that is here."""
    if name not in ("evaluate", "film", "train"):
        raise AttributeError(f"module 'tpsrl' has no attribute '{name}'")
    from tpsrl.commands import api

    return getattr(api, name)
