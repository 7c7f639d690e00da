"""Figures of matplotlib that are drawn into files, whatever backend the environment selects."""

import contextlib
import os
import sys
import threading
from typing import Any

_VARIABLE = "MPLBACKEND"  # a notebook sets a backend that may not be installed here
_lock = threading.Lock()


def figure(**options: Any) -> Any:
    """Returns a `matplotlib.figure.Figure` with these options; `savefig` draws it with Agg."""
    with _lock:
        if "matplotlib" not in sys.modules:
            _import()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(**options)
    FigureCanvasAgg(made)
    return made


def _import() -> None:
    """Imports matplotlib without MPLBACKEND, since an unknown backend makes the import fail."""
    backend = os.environ.pop(_VARIABLE, None)
    try:
        import matplotlib
    finally:
        if backend is not None:
            os.environ[_VARIABLE] = backend
    if backend is not None:
        with contextlib.suppress(ValueError):
            matplotlib.rcParams["backend"] = backend  # for the figures of a notebook
