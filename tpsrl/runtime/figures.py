"""Figures of matplotlib, which draw into files whatever the environment says of windows."""

import os
import threading
from typing import Any

_VARIABLE = "MPLBACKEND"  # a notebook's shell sets one that need not be installed elsewhere
_lock = threading.Lock()


def figure(**options: Any) -> Any:
    """A `matplotlib.figure.Figure` with these options; `savefig` draws it by Agg."""
    with _lock:
        backend = os.environ.pop(_VARIABLE, None)  # read, and checked, at matplotlib's import
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        finally:
            if backend is not None:
                os.environ[_VARIABLE] = backend
    made = Figure(**options)
    FigureCanvasAgg(made)
    return made
