"""Figures of matplotlib, which draw into files whatever the environment says of windows."""

import contextlib
import os
import sys
import threading
from typing import Any

_VARIABLE = "MPLBACKEND"  # a notebook's shell sets one that need not be installed elsewhere
_lock = threading.Lock()


def figure(**options: Any) -> Any:
    """A `matplotlib.figure.Figure` with these options; `savefig` draws it by Agg."""
    with _lock:
        if "matplotlib" not in sys.modules:
            _import()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(**options)
    FigureCanvasAgg(made)
    return made


def _import() -> None:
    """Imports matplotlib, which refuses to be if the variable has a name that it does not know."""
    backend = os.environ.pop(_VARIABLE, None)
    try:
        import matplotlib
    finally:
        if backend is not None:
            os.environ[_VARIABLE] = backend
    if backend is not None:
        with contextlib.suppress(ValueError):
            matplotlib.rcParams["backend"] = backend  # for the pictures of a notebook
