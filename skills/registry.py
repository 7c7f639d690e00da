"""Which skills there are, by name; from the box, from other packages, from a user's own modules.

A skill is registered by `register`, at the import of the module that defines it. Modules are found
by the entry point "tpsrl.skills" of installed packages and by name: `skill_modules=my_pkg.my_skill`
on the command line, which worker processes get to know by an environment variable.
"""

import contextlib
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from skills.spec import SkillSpec
from tpsrl.errors import UserError, unknown

ENTRY_POINT = "tpsrl.skills"
VARIABLE = "TPSRL_SKILL_MODULES"

_IN_THE_BOX = (
    "skills.navigate",
    "skills.pick",
    "skills.place",
    "skills.articulated",
    "skills.pointnav",
)

_specs: dict[str, SkillSpec] = {}
_state = {"version": 0, "found": False}


def register(spec: SkillSpec) -> SkillSpec:
    """Makes a skill known.

    Raises:
        UserError: another skill has its name, or its id with gymnasium.
    """
    _find()
    for other in _specs.values():
        # A script that is run and a module that is imported may be the same file.
        again = type(other.definition).__qualname__ == type(spec.definition).__qualname__
        if other.name == spec.name and (_rank(other) < len(_IN_THE_BOX) or not again):
            raise UserError(f"skill: '{spec.name}' is registered already")
        if other.name != spec.name and other.env_id == spec.env_id:
            raise UserError(f"skill {spec.name}: {other.name} has the gymnasium id {spec.env_id}")
    _specs[spec.name] = spec
    _state["version"] += 1
    return spec


def unregister(name: str) -> None:
    """Forgets a skill that is not in the box."""
    spec = _specs.get(name)
    if spec is not None and _rank(spec) == len(_IN_THE_BOX):
        del _specs[name]
        _state["version"] += 1


@contextlib.contextmanager
def registered(spec: SkillSpec) -> Iterator[SkillSpec]:
    """A skill that is known inside `with` only, for tests."""
    try:
        yield register(spec)
    finally:
        unregister(spec.name)


def specs() -> dict[str, SkillSpec]:
    """All skills by name: those in the box first, then others by their names."""
    _find()
    own = [spec for spec in _specs.values() if _rank(spec) < len(_IN_THE_BOX)]
    others = [spec for spec in _specs.values() if _rank(spec) == len(_IN_THE_BOX)]
    ordered = [*sorted(own, key=_rank), *sorted(others, key=lambda spec: spec.name)]
    return {spec.name: spec for spec in ordered}


def names() -> tuple[str, ...]:
    """The names of all skills."""
    return tuple(specs())


def planned() -> tuple[str, ...]:
    """The names of the skills that carry out actions of a plan."""
    return tuple(name for name, spec in specs().items() if spec.actions)


def get(name: str) -> SkillSpec:
    """A skill.

    Raises:
        UserError: there is none of that name; names the nearest.
    """
    found = specs()
    if name not in found:
        raise unknown("skill", name, found)
    return found[name]


def carrying_out(action: str, chosen: Mapping[str, str] | None = None) -> SkillSpec:
    """The skill that carries out an action of the planning domain.

    Where several can, the one in the box does, unless `chosen` names another for the action.

    Raises:
        UserError: there is none, or the chosen one cannot; names the nearest.
    """
    able = {name: spec for name, spec in specs().items() if action in spec.actions}
    if not able:
        known = (action for spec in specs().values() for action in spec.actions)
        raise unknown("domain action", action, known)
    name = (chosen or {}).get(action)
    if name is None:
        return next(iter(able.values()))
    if name not in able:
        raise unknown(f"actions.{action}", name, able)
    return able[name]


def load_modules(names: str) -> str:
    """Imports modules that register skills, here and in every worker process from now on.

    Args:
        names: dotted names, found as Python finds modules or in the working directory, or paths of
            files that end in .py; separated by commas

    Returns:
        The same with whole paths, good from any directory.

    Raises:
        UserError: one cannot be imported, or registers no skill.
    """
    _find()
    whole = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        before = _state["version"]
        module = _import(name)
        if _state["version"] == before and not _of_module(module):
            raise UserError(f"skill_modules: {name} registers no skill")
        path = Path(name)
        whole.append(str(path.resolve()) if path.suffix == ".py" else name)
    known = [name for name in os.environ.get(VARIABLE, "").split(",") if name]
    os.environ[VARIABLE] = ",".join(dict.fromkeys([*known, *whole]))
    return ",".join(whole)


def _of_module(module: str) -> list[str]:
    """The skills whose definitions a module has."""
    kinds = {name: type(spec.definition).__module__ for name, spec in _specs.items()}
    return [name for name, where in kinds.items() if where == module]


def _rank(spec: SkillSpec) -> int:
    """The place in the list of the module that a skill in the box is from; after all for others."""
    for rank, module in enumerate(_IN_THE_BOX):
        # A skill of a user's own may well have a definition of ours.
        if any(value is spec for value in vars(sys.modules.get(module, object)).values()):
            return rank
    return len(_IN_THE_BOX)


def _find() -> None:
    """Imports the skills in the box, those of installed packages, and those that a parent named."""
    if _state["found"]:
        return
    _state["found"] = True  # what is imported below comes here again
    try:
        _import_all()
    except BaseException:
        _state["found"] = False
        raise


def _import_all() -> None:
    for module in _IN_THE_BOX:
        importlib.import_module(module)
    for point in sorted(importlib.metadata.entry_points(group=ENTRY_POINT), key=str):
        try:
            loaded = point.load()
        except Exception as error:
            # Somebody else's package: whatever is wrong with it, the user has to know whose it is.
            raise UserError(
                f"skills: entry point '{point.value}' fails ({_said(error)})"
            ) from error
        if isinstance(loaded, SkillSpec) and loaded.name not in _specs:
            register(loaded)
    for name in os.environ.get(VARIABLE, "").split(","):
        if name:
            _import(name)


def _import(name: str) -> str:
    """Imports a module or file; the module's name."""
    path = Path(name)
    folder, module = Path.cwd(), name
    if path.suffix == ".py":
        folder, module = path.resolve().parent, path.stem
        if not path.is_file():
            raise UserError(f"skill_modules: there is no file {name}")
    if str(folder) not in sys.path:
        # After everything installed, so that nothing of the user's hides what others import.
        sys.path.append(str(folder))
    try:
        found = importlib.import_module(module)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"skill_modules: cannot import {name} ({_said(error)})") from error
    where = getattr(found, "__file__", None) or "built into Python"
    if path.suffix == ".py" and not (os.path.exists(where) and path.samefile(where)):
        raise UserError(f"skill_modules: {name}: another module is called {module} ({where})")
    return module


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
