"""Registry of skills by name: built-in ones, those of other packages and of user modules.

The module that defines a skill calls `register` when it is imported. Besides the built-in modules,
the registry imports the entry points "tpsrl.skills" of installed packages, and modules named on the
command line: `skill_modules=my_pkg.my_skill`. Worker processes read the latter from an environment
variable.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import sys
from collections.abc import Iterator, Mapping

from skills.spec import SkillSpec
from tpsrl.errors import UserError, unknown
from tpsrl.runtime.user_modules import UserModules, error_text

ENTRY_POINT = "tpsrl.skills"
VARIABLE = "TPSRL_SKILL_MODULES"

_MODULES = UserModules("skill_modules", VARIABLE, "skill")
_IN_THE_BOX = (
    "skills.navigate",
    "skills.pick",
    "skills.place",
    "skills.articulated",
    "skills.pointnav",
    "skills.objectnav",
    "skills.monolithic",
)

_specs: dict[str, SkillSpec] = {}
_state = {"version": 0, "found": False, "whole": False}


def register(spec: SkillSpec) -> SkillSpec:
    """Registers a skill and returns its spec.

    Raises:
        UserError: another skill has the same name or the same gymnasium id.
    """
    _find()
    for other in _specs.values():
        if other.name == spec.name and not _same(other, spec):
            raise UserError(f"skill: '{spec.name}' is registered already")
        if other.name != spec.name and other.env_id == spec.env_id:
            raise UserError(f"skill {spec.name}: {other.name} has the gymnasium id {spec.env_id}")
    _specs[spec.name] = spec
    _state["version"] += 1
    return spec


def _same(one: SkillSpec, other: SkillSpec) -> bool:
    """Returns whether one file registered the skill twice.

    That happens when the file is reloaded, or runs as a script and is imported as a module.
    """
    if _rank(one) < len(_IN_THE_BOX):
        return False
    kinds = type(one.definition), type(other.definition)
    where = {kind.__module__ for kind in kinds}
    return kinds[0].__qualname__ == kinds[1].__qualname__ and (
        len(where) == 1 or bool(where & {"__main__", "__mp_main__"})
    )


def unregister(name: str) -> None:
    """Removes a skill from the registry; built-in and unknown skills are ignored."""
    spec = _specs.get(name)
    if spec is not None and _rank(spec) == len(_IN_THE_BOX):
        del _specs[name]
        _state["version"] += 1


@contextlib.contextmanager
def registered(spec: SkillSpec) -> Iterator[SkillSpec]:
    """Registers a skill inside the `with` block only, for tests."""
    register(spec)
    try:
        yield spec
    finally:
        unregister(spec.name)


def specs() -> dict[str, SkillSpec]:
    """Returns all skills by name: built-in ones in a fixed order, then the others by name."""
    _find()
    # No caching during the import of the built-in modules: a spec may be registered before its
    # module has assigned it to a name, and `_rank` would not find it.
    order = _ordered(_state["version"]) if _state["whole"] else _in_order()
    return dict(order)


@functools.lru_cache(maxsize=1)
def _ordered(version: int) -> tuple[tuple[str, SkillSpec], ...]:
    """Caches `_in_order` for each registry version, since settings look it up very often."""
    return _in_order()


def _in_order() -> tuple[tuple[str, SkillSpec], ...]:
    own = [spec for spec in _specs.values() if _rank(spec) < len(_IN_THE_BOX)]
    others = [spec for spec in _specs.values() if _rank(spec) == len(_IN_THE_BOX)]
    ordered = [*sorted(own, key=_rank), *sorted(others, key=lambda spec: spec.name)]
    return tuple((spec.name, spec) for spec in ordered)


def names() -> tuple[str, ...]:
    """Returns the names of all skills, in the order of `specs`."""
    return tuple(specs())


def planned() -> tuple[str, ...]:
    """Returns the names of the skills that carry out actions of a plan."""
    return tuple(name for name, spec in specs().items() if spec.actions)


def get(name: str) -> SkillSpec:
    """Returns the spec of a skill.

    Raises:
        UserError: the name is unknown; the message names the nearest one.
    """
    found = specs()
    if name not in found:
        raise unknown("skill", name, found)
    return found[name]


def check_name(name: str) -> None:
    """Checks that a skill of this name is registered.

    Raises:
        UserError: the name is unknown (the message names the nearest one) or empty (it names all).
    """
    if not name:
        raise UserError(f"skill: choose one of {', '.join(names())}")
    get(name)


def carrying_out(action: str, chosen: Mapping[str, str] | None = None) -> SkillSpec:
    """Returns the skill that carries out an action of the planning domain.

    If several skills can, the first in the order of `specs` is taken: a built-in one comes first.

    Args:
        action: name of the action
        chosen: names of skills by action, which override the default

    Raises:
        UserError: no skill carries out the action, or the chosen one does not; the message names
            the nearest.
    """
    able = {name: spec for name, spec in specs().items() if action in spec.actions}
    if not able:
        known = (action for spec in specs().values() for action in spec.actions)
        raise unknown("actions" if action in (chosen or {}) else "domain: action", action, known)
    name = (chosen or {}).get(action)
    if name is None:
        return next(iter(able.values()))
    if name not in able:
        raise unknown(f"actions.{action}", name, able)
    return able[name]


def choices(text: str) -> dict[str, str]:
    """Parses "ACTION:SKILL,ACTION:SKILL" into the names of skills by action.

    Raises:
        UserError: the text has another form, or a skill cannot carry out its action.
    """
    found = {}
    for pair in filter(None, text.split(",")):
        action, colon, skill = (part.strip() for part in pair.partition(":"))
        if not colon:
            raise UserError(f"actions: '{pair}' must have the form ACTION:SKILL")
        found[action] = carrying_out(action, {action: skill}).name
    return found


def load_modules(names: str) -> str:
    """Imports modules that register skills, in this process and all worker processes started later.

    Args:
        names: see `tpsrl.runtime.user_modules.UserModules.load`

    Returns:
        The names with absolute paths of files, so that they are valid in any directory.

    Raises:
        UserError: a module cannot be imported, or registers no skill.
    """
    _find()
    return _MODULES.load(names, _modules)


def _modules() -> dict[str, str]:
    """Returns the module of each skill's definition, by the skill's name."""
    return {name: type(spec.definition).__module__ for name, spec in _specs.items()}


def _rank(spec: SkillSpec) -> int:
    """Returns the index of a skill's module in `_IN_THE_BOX`, or its length for other skills."""
    for rank, module in enumerate(_IN_THE_BOX):
        # Compares specs, not definitions: a user's skill may reuse a built-in skill's definition.
        if any(value is spec for value in vars(sys.modules.get(module, object)).values()):
            return rank
    return len(_IN_THE_BOX)


def _find() -> None:
    """Imports skills: built-in ones, those of installed packages, those a parent process named."""
    if _state["found"]:
        return
    _state["found"] = True  # The modules imported below call this function again.
    try:
        _import_all()
        _state["whole"] = True
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
            # A third-party package may raise anything; the message has to name the package.
            raise UserError(
                f"skills: entry point '{point.value}' fails ({error_text(error)})"
            ) from error
        if isinstance(loaded, SkillSpec) and loaded.name not in _specs:
            register(loaded)
    _MODULES.load_passed_on()
