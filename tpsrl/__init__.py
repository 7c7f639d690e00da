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
    """The functions of `tpsrl.api`, imported when asked for: they need all that is here."""
    if name not in __all__:
        raise AttributeError(f"module 'tpsrl' has no attribute '{name}'")
    state = random.getstate()  # of the caller's, from which rich draws when it is imported
    from tpsrl import api

    random.setstate(state)
    return getattr(api, name)
