"""The packages beside this one have common names: notices when something shadows one of them."""

import importlib.util
import os
import sys

NAMES = ("configs", "eval", "planner", "skills")
_ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


class ShadowedError(ImportError):
    """Something else would be imported in the place of a package of ours."""


def check() -> None:
    """Looks where each package would be imported from, without importing it.

    Raises:
        ShadowedError: from elsewhere than beside `tpsrl`; the message names the path in the way.
    """
    for name in NAMES:
        found = _found(name)
        ours = os.path.join(_ROOT, name)
        if found is not None and os.path.realpath(found) != os.path.realpath(ours):
            raise ShadowedError(
                f"'{found}' is in the way of tpsrl's own package '{name}': "
                "rename it, or run from another directory",
                name=name,
                path=found,
            )


def is_command() -> bool:
    """Whether Python was started as `tpsrl` or `python -m tpsrl`, which has its own way to tell."""
    program = sys.argv[0] if getattr(sys, "argv", None) else ""
    if program == "-m":
        return sys.orig_argv[sys.orig_argv.index("-m") + 1 :][:1] == ["tpsrl"]
    return os.path.splitext(os.path.basename(program))[0] == "tpsrl"


def _found(name: str) -> str | None:
    """The folder or file that `import name` would take; None if there is none."""
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # imported already, in a way that left no spec
        return getattr(sys.modules[name], "__file__", None) or name
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return str(next(iter(spec.submodule_search_locations)))
    return spec.origin
