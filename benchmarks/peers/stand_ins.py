"""Stand-ins for modules that habitat-baselines imports and a gym environment does not need.

habitat-lab imports its simulator wherever it is installed without asking whether it will be used.
Under `install` such modules import as ones that have every name: a name that begins with a capital
is an empty class, any other a function that does nothing. Neither does any work in a training on
another environment.
"""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any

NAMES = (
    "habitat_sim",
    "magnum",
    "corrade",
    "torchvision",
    "lmdb",
    "moviepy",
    "webdataset",
    "clip",
)


class _Kind(type):
    """Classes that have every attribute."""

    def __getattr__(cls, name: str) -> Any:
        return _something(name)


class _Anything(metaclass=_Kind):
    """An object that has every attribute; called as a decorator, it changes nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else self

    def __getattr__(self, name: str) -> Any:
        return _something(name)


def _something(name: str) -> Any:
    """What an unknown name stands for."""
    if name.startswith("__"):
        raise AttributeError(name)
    return _Kind(name, (_Anything,), {}) if name[:1].isupper() else _Anything()


class _StandIn(types.ModuleType):
    """A module of which every part can be imported."""

    def __getattr__(self, name: str) -> Any:
        return _something(name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in NAMES:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def install() -> None:
    """Makes the stand-ins importable in this process, after everything that is installed."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
