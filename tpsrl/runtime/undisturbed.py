"""Restores the state of the calling process: torch's threads, random generators, environment."""

import contextlib
import importlib
import os
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

_OURS = "TPSRL_"  # variables that pass the user's modules on to workers are kept


@contextlib.contextmanager
def undisturbed(variables: Mapping[str, str] | None = None) -> Iterator[None]:
    """Restores at its end, also after an error, the process-wide state that the block changes.

    The state consists of the number of torch's threads, the global generators of Python, numpy and
    torch (including each GPU), and the environment variables, except those of tpsrl.

    Args:
        variables: the environment to restore; the current one if None
    """
    variables = dict(os.environ if variables is None else variables)
    with contextlib.ExitStack() as restoring:
        restoring.callback(_restore_variables, variables)
        restoring.callback(random.setstate, random.getstate())
        restoring.callback(np.random.set_state, np.random.get_state())
        with contextlib.suppress(ImportError):
            # Imported before the block runs, so that torch's initial state can be recorded.
            _restore_torch(importlib.import_module("torch"), restoring)
        yield


def _restore_torch(torch: Any, restoring: contextlib.ExitStack) -> None:
    restoring.callback(torch.set_num_threads, torch.get_num_threads())
    restoring.callback(torch.set_rng_state, torch.get_rng_state())
    if torch.cuda.is_initialized():
        restoring.callback(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())


def _restore_variables(before: Mapping[str, str]) -> None:
    for name in os.environ.keys() - before.keys():
        if not name.startswith(_OURS):
            del os.environ[name]
    for name, value in before.items():
        if not name.startswith(_OURS):
            os.environ[name] = value
