"""Check of the arrays that the robot's own maps are restored from."""

from collections.abc import Iterable, Mapping

import numpy as np

from tpsrl.errors import UserError


def check(
    what: str,
    names: Iterable[str],
    arrays: Mapping[str, np.ndarray],
    own: Mapping[str, np.ndarray],
) -> None:
    """Checks the arrays of a map in a snapshot against those of another map of the same kind.

    Args:
        what: the map, for the error message
        names: names of the arrays to check
        arrays: arrays of the snapshot by name
        own: arrays with the expected shapes and types

    Raises:
        UserError: an array is missing, not finite, or has another shape or type.
    """
    for name in names:
        values = arrays.get(name)
        if values is None or values.shape != own[name].shape:
            raise UserError(f"{what}: array {name} is missing or of another shape")
        if values.dtype != own[name].dtype or not np.isfinite(values).all():
            raise UserError(f"{what}: array {name} is damaged")
