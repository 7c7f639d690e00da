"""Checks for the packages of the engine `warp`."""

import importlib.util

from tpsrl.errors import UserError

PACKAGES = ("mujoco_warp", "warp")
INSTALL = "pip install tpsrl[warp]"


def missing() -> list[str]:
    """Returns the packages that are not installed."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


def require() -> None:
    """Checks that the packages are installed.

    Raises:
        UserError: packages are missing; names them and the command that installs them.
    """
    lacking = missing()
    if lacking:
        raise UserError(
            f"engine: 'warp' needs {' and '.join(lacking)}, not installed here; {INSTALL}"
        )
