"""Detects modules that shadow the packages beside `tpsrl`, whose names are common words."""

import importlib.util
import os
import sys

NAMES = ("configs", "eval", "planner", "skills")
_ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


class ShadowedError(ImportError):
    """Another module would be imported instead of a package of this project."""


def check() -> None:
    """Checks where each package would be imported from, without importing it.

    Raises:
        ShadowedError: a package would not be imported from beside `tpsrl`; names the conflicting
            path.
    """
    for name in NAMES:
        found = _found(name)
        ours = os.path.join(_ROOT, name)
        if found is not None and os.path.realpath(found) != os.path.realpath(ours):
            raise ShadowedError(
                f"'{found}' shadows tpsrl's own package '{name}': "
                "rename it, or run from another directory",
                name=name,
                path=found,
            )


def is_command() -> bool:
    """Returns whether Python was started as the `tpsrl` command, which calls `check` itself."""
    program = sys.argv[0] if getattr(sys, "argv", None) else ""
    if program == "-m":
        return sys.orig_argv[sys.orig_argv.index("-m") + 1 :][:1] == ["tpsrl"]
    return os.path.splitext(os.path.basename(program))[0] == "tpsrl"


def _found(name: str) -> str | None:
    """Returns the folder or file that `import name` would load; None if there is none."""
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # the module is imported already and has no spec
        return getattr(sys.modules[name], "__file__", None) or name
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return str(next(iter(spec.submodule_search_locations)))
    return spec.origin
