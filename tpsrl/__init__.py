"""tpsrl: train, chain and diagnose the skills of a home robot."""

import random
from typing import TYPE_CHECKING, Any

from tpsrl.runtime import moved, shadowing

if TYPE_CHECKING:
    from tpsrl.api import clone, distill, evaluate, film, record_bank, record_demos, train

__version__ = "0.1.0"
__all__ = [
    "__version__",
    "clone",
    "distill",
    "evaluate",
    "film",
    "record_bank",
    "record_demos",
    "train",
]

moved.refuse()
if not shadowing.is_command():
    shadowing.check()


def __getattr__(name: str) -> Any:
    """Imports the functions of `tpsrl.api` on first access, because they need the whole package."""
    if name not in __all__:
        raise AttributeError(f"module 'tpsrl' has no attribute '{name}'")
    state = random.getstate()  # rich draws from the global generator when it is imported
    from tpsrl import api

    random.setstate(state)
    return getattr(api, name)
