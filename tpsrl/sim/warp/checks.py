"""Whether the packages of the engine are there."""

import importlib.util

from tpsrl.errors import UserError

PACKAGES = ("mujoco_warp", "warp")
INSTALL = "pip install tpsrl[warp]"


def missing() -> list[str]:
    """The packages that cannot be imported."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


def require() -> None:
    """Refuses to go on without the packages.

    Raises:
        UserError: names those that are missing and what brings them.
    """
    lacking = missing()
    if lacking:
        raise UserError(
            f"engine: 'warp' needs {' and '.join(lacking)}, not installed here; {INSTALL}"
        )
