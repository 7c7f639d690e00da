"""Modules of earlier versions: importing one raises an error with its new name."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_TABLE = "moved_modules.txt"  # one line per module: old name, new name


class _MovedFinder(MetaPathFinder):
    """Last finder of imports, for modules that no other finder has found."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        new = names().get(fullname) if "." in fullname else None
        if new is not None:
            raise ImportError(f"'{fullname}' is now '{new}'", name=fullname)
        return None


def names() -> dict[str, str]:
    """Returns the new names of moved modules, by old name."""
    import importlib.resources

    text = (importlib.resources.files("tpsrl.runtime") / _TABLE).read_text(encoding="utf-8")
    return dict(line.split() for line in text.splitlines())


def refuse() -> None:
    """Makes imports of moved modules fail with the new name."""
    if not any(isinstance(finder, _MovedFinder) for finder in sys.meta_path):
        sys.meta_path.append(_MovedFinder())
