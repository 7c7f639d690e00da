"""Stand-ins for modules that habitat-baselines imports and a gym environment does not need.

habitat-lab imports its simulator whenever it is installed, even if it is not used. After `install`,
these modules can be imported and have every name: a name with an initial capital is an empty class,
any other an object that does nothing. No stand-in does any work in a training on another
environment.
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
    """Metaclass of classes that have every attribute."""

    def __getattr__(cls, name: str) -> Any:
        return _something(name)


class _Anything(metaclass=_Kind):
    """Object that has every attribute; called as a decorator, it returns the function unchanged."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else self

    def __getattr__(self, name: str) -> Any:
        return _something(name)


def _something(name: str) -> Any:
    """Returns the stand-in for an unknown name."""
    if name.startswith("__"):
        raise AttributeError(name)
    return _Kind(name, (_Anything,), {}) if name[:1].isupper() else _Anything()


class _StandIn(types.ModuleType):
    """Module from which every name can be imported."""

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
    """Makes the stand-ins importable in this process; installed modules take precedence."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
