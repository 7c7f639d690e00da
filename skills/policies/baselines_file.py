"""Reading of checkpoints of habitat-baselines without running their code.

Such a file (`.pth`) is a pickle that contains weights, and the settings of the training as objects
of omegaconf and habitat-baselines. Tensors are created by torch; objects of all other classes
become records of their attributes, from which the settings are read.
"""

import collections
import dataclasses
import os
import pickle
import types
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import torch

from tpsrl.errors import UserError
from tpsrl.runtime import files

_FIELD = "checkpoint"
_WEIGHTS = "state_dict"
_PREFIX = "actor_critic."  # prefix of weight names in versions before 0.2.5
_DEEPEST = 40  # maximum depth of nested settings


@dataclasses.dataclass(frozen=True, slots=True)
class BaselinesFile:
    """Contents of a checkpoint.

    `weights` are by name; `settings` are those of the training as plain values, {} if missing;
    `steps` is the number of steps trained, 0 if missing.
    """

    path: Path
    weights: dict[str, torch.Tensor]
    settings: Mapping[str, Any]
    steps: int

    def setting(self, key: str, default: Any = None) -> Any:
        """Returns a setting by dotted key, or `default` if it is missing or of another type."""
        value: Any = self.settings
        for name in key.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return value if default is None or type(value) is type(default) else default


def read(path: str | os.PathLike[str]) -> BaselinesFile:
    """Reads a checkpoint.

    Raises:
        UserError: the file is missing, or is not a checkpoint of habitat-baselines.
    """
    where = files.user_path(path, _FIELD)
    if not where.is_file():
        raise UserError(f"{_FIELD}: there is no file '{path}'; name a ckpt.N.pth")
    try:
        found = torch.load(where, "cpu", pickle_module=_PICKLE, weights_only=False)
    except OSError as error:
        raise UserError(f"{_FIELD}: cannot read {path} ({error.strerror or error})") from None
    except Exception as error:  # Torch and pickle raise many kinds for files that are no pickles.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"{_FIELD}: {path} is not a checkpoint of habitat-baselines ({reason})"
        ) from None
    weights = found.get(_WEIGHTS) if isinstance(found, dict) else None
    if not isinstance(weights, dict) or not weights:
        raise UserError(
            f"{_FIELD}: {path} is not a checkpoint of habitat-baselines (no '{_WEIGHTS}')"
        )
    for name, tensor in weights.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise UserError(f"{_FIELD}: {path}: '{name}' is not a tensor")
    settings, extra = _plain(found.get("config")), found.get("extra_state")
    steps = extra.get("step") if isinstance(extra, dict) else 0
    return BaselinesFile(
        Path(where),
        {name.removeprefix(_PREFIX): tensor for name, tensor in weights.items()},
        settings if isinstance(settings, dict) else {},
        steps if type(steps) is int and steps > 0 else 0,
    )


class _Record:
    """Stand-in for an object of a class that is not loaded, with its arguments and attributes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.given = args

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update(state)

    # Methods that unpickling calls for subclasses of lists and dictionaries.
    def append(self, value: Any) -> None: ...
    def extend(self, values: Any) -> None: ...
    def __setitem__(self, key: Any, value: Any) -> None: ...


class _Unpickler(pickle.Unpickler):
    """Unpickler that loads tensors and ordered dictionaries, and all else as `_Record`."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if module == "torch._utils" and name in ("_rebuild_tensor_v2", "_rebuild_parameter"):
            return getattr(torch._utils, name)
        if module == "torch" and name.endswith("Storage"):
            return super().find_class(module, name)
        return _Record


def _load(file: IO[bytes], **options: Any) -> Any:
    return _Unpickler(file, **options).load()


# Replaces the module `pickle` in `torch.load`.
_PICKLE = types.SimpleNamespace(Unpickler=_Unpickler, load=_load, __name__="pickle")


def _plain(node: Any, depth: int = 0) -> Any:
    """Converts an omegaconf node to a plain value: containers have `_content`, others `_val`."""
    if depth > _DEEPEST:
        return None
    if isinstance(node, _Record):
        attributes = vars(node)
        if "_content" in attributes:
            return _plain(attributes["_content"], depth + 1)
        return _plain(attributes.get("_val"), depth + 1)
    if isinstance(node, dict):
        return {str(key): _plain(value, depth + 1) for key, value in node.items()}
    if isinstance(node, list):
        return [_plain(value, depth + 1) for value in node]
    return node if isinstance(node, str | int | float | bool) else None
