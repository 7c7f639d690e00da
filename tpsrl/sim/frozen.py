"""Checks of snapshot arrays, which may come from a file, before a home is restored from them.

The engine uses the integers among its arrays as addresses without checks: wrong ones would make it
access foreign memory or loop forever.
"""

from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np

from tpsrl.errors import UserError
from tpsrl.sim.home_model import MUTABLE_FIELDS
from tpsrl.world.state import JOINTS

Arrays = Mapping[str, np.ndarray]
Kinds = Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]

_LARGEST = float(mujoco.mjMAXVAL)  # the engine resets a simulation with larger values
_NAMED = 3  # maximum number of arrays named in a message
_TREE = ("bvh_child", "bvh_nodeid", "bvh_aabb")
_LATER = ("eq_data", "geom_margin", "body_gravcomp")  # written when an object is held or parked
_OF_EPISODE = tuple(name for name in MUTABLE_FIELDS if name not in (*_TREE, *_LATER))
_NEAR = 1e-6  # relative and absolute, since machines round differently


def kinds(arrays: Arrays) -> Kinds:
    """Returns dtype and shape of each array."""
    return {name: (value.dtype, value.shape) for name, value in arrays.items()}


def check_kinds(arrays: Arrays, own: Kinds, what: str = "snapshot") -> None:
    """Checks that arrays have the names, dtypes and shapes of a home's own arrays.

    Args:
        arrays: the arrays to check
        own: dtypes and shapes of the home's own arrays
        what: the subject of error messages

    Raises:
        UserError: names the array.
    """
    if wrong := sorted(own.keys() ^ arrays.keys()):
        more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
        raise UserError(f"{what}: {', '.join(wrong[:_NAMED])}{more}: missing or unknown")
    found = kinds(arrays)
    if found == own:
        return
    name = next(name for name in own if found[name] != own[name])
    (kind, shape), (own_kind, own_shape) = found[name], own[name]
    raise UserError(f"{what}: {name}: is {kind} {shape}, this home has {own_kind} {own_shape}")


def check_values(arrays: Arrays, model: Any, num_objects: int) -> None:
    """Checks that the values are possible for a home in its episode.

    Args:
        arrays: arrays that have passed `check_kinds`
        model: the model prepared for the episode, with nothing held
        num_objects: number of objects of the episode

    Raises:
        UserError: names the array.
    """
    _check_sizes(arrays)
    _check_home(arrays["home/integers"].tolist(), num_objects)
    _check_model(arrays, model)
    _check_tree(arrays, model)
    _check_sleep(arrays, model)
    _check_moments(arrays, model.nv)


def _check_sizes(arrays: Arrays) -> None:
    names = [name for name, value in arrays.items() if value.dtype.kind == "f"]
    if _small(np.concatenate([arrays[name] for name in names], axis=None)):
        return
    name = next(name for name in names if not _small(arrays[name]))
    raise UserError(f"snapshot: {name}: not finite, or beyond {_LARGEST:g}")


def _small(values: np.ndarray) -> bool:
    return bool(np.abs(values).max() <= _LARGEST)  # False for NaN


def _check_home(integers: list[int], num_objects: int) -> None:
    joints = len(JOINTS)
    names = ("held object", "held joint", "released object or joint", "steps", "violation")
    let_go = joints + num_objects  # objects are numbered after the joints
    ranges = (-1, num_objects), (-1, joints), (-1, let_go), (0, 2**31), (0, 2)
    for name, value, (least, end) in zip(names, integers, ranges, strict=True):
        if not least <= value < end:
            raise UserError(
                f"snapshot: home/integers: {name} is {value}, must be between {least} and {end - 1}"
            )


def _check_model(arrays: Arrays, model: Any) -> None:
    """Compares the fields that follow from the episode with those of the model."""
    for name in _OF_EPISODE:
        if not _alike(arrays[f"model/{name}"], getattr(model, name)):
            raise UserError(f"snapshot: model/{name}: differs from the episode's")


def _alike(found: np.ndarray, own: np.ndarray) -> bool:
    return np.array_equal(found, own) or np.allclose(found, own, rtol=_NEAR, atol=_NEAR)


def _check_tree(arrays: Arrays, model: Any) -> None:
    """Checks the bounding volume trees.

    The tree over static geoms may differ from the model's, since another machine may have built
    it, but it must be a valid tree over the same geoms.
    """
    child, leaf = arrays["model/bvh_child"], arrays["model/bvh_nodeid"]
    if np.array_equal(child, model.bvh_child) and np.array_equal(leaf, model.bvh_nodeid):
        return
    first, count = int(model.body_bvhadr[0]), int(model.body_bvhnum[0])
    still, moving = slice(first, first + count), np.ones(len(leaf), dtype=bool)
    moving[still] = False
    same = np.array_equal(child[moving], model.bvh_child[moving])
    same &= np.array_equal(leaf[moving], model.bvh_nodeid[moving])
    same &= np.array_equal(np.sort(leaf[still]), np.sort(model.bvh_nodeid[still]))
    if not (same and _is_tree(child[still], leaf[still])):
        raise UserError("snapshot: model/bvh_child, model/bvh_nodeid: not a tree of the episode")


def _is_tree(child: np.ndarray, leaf: np.ndarray) -> bool:
    """Returns whether each node but the first has one earlier parent, and leaves have no child."""
    inner = leaf < 0
    nodes, below = np.flatnonzero(inner), child[inner]
    return (
        bool((child[~inner] == -1).all())
        and np.array_equal(np.sort(below.ravel()), np.arange(1, len(leaf)))
        and bool((below > nodes[:, None]).all())
    )


def _check_sleep(arrays: Arrays, model: Any) -> None:
    """Checks the sleeping kinematic trees, in rings that wake together, and the derived arrays."""
    ring = arrays["data/tree_asleep"]
    asleep, awake = np.flatnonzero(ring >= 0), ring < 0
    if not np.array_equal(np.sort(ring[asleep]), asleep):
        raise UserError("snapshot: data/tree_asleep: must be rings of trees")
    body = np.where(model.body_treeid < 0, -1, awake[model.body_treeid])
    for name, found in (("tree_awake", awake), ("body_awake", body)):
        if not np.array_equal(arrays[f"data/{name}"], found):
            raise UserError(f"snapshot: data/{name}: does not follow from data/tree_asleep")
    if arrays["scalar/ntree_awake"] != np.count_nonzero(awake):
        raise UserError("snapshot: scalar/ntree_awake: does not follow from data/tree_asleep")
    for name, count, rows in (
        ("body_awake_ind", "nbody_awake", np.flatnonzero(body)),
        # The first entry is dropped: the world body has no parent.
        ("parent_awake_ind", "nparent_awake", np.flatnonzero(body[model.body_parentid])[1:]),
        ("dof_awake_ind", "nv_awake", np.flatnonzero(awake[model.dof_treeid])),
    ):
        values = arrays[f"data/{name}"]
        inside = values.min() >= 0 and values.max() < len(values)
        follows = arrays[f"scalar/{count}"] == len(rows)
        if not (inside and follows and np.array_equal(values[: len(rows)], rows)):
            raise UserError(
                f"snapshot: data/{name}, scalar/{count}: do not follow from data/tree_asleep"
            )


def _check_moments(arrays: Arrays, num_dofs: int) -> None:
    """Checks the rows of the actuators' sparse moment matrix."""
    column = arrays["data/moment_colind"]
    first, count = arrays["data/moment_rowadr"], arrays["data/moment_rownnz"]
    inside = column.min() >= 0 and column.max() < num_dofs
    inside &= first.min() >= 0 and count.min() >= 0 and count.max() <= len(column)
    if not (inside and first.max() <= len(column) and (first + count).max() <= len(column)):
        raise UserError("snapshot: data/moment_*: out of range")
