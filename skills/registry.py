"""Which skills there are, by name; from the box, from other packages, from a user's own modules.

A skill is registered by `register`, at the import of the module that defines it. Modules are found
by the entry point "tpsrl.skills" of installed packages and by name: `skill_modules=my_pkg.my_skill`
on the command line, which worker processes get to know by an environment variable.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import sys
from collections.abc import Iterator, Mapping

from skills.spec import SkillSpec
from tpsrl.errors import UserError, unknown
from tpsrl.runtime.user_modules import UserModules, told

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
    """Makes a skill known.

    Raises:
        UserError: another skill has its name, or its id with gymnasium.
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
    """Whether one file has registered a skill twice: reloaded, or as a script and as a module."""
    if _rank(one) < len(_IN_THE_BOX):
        return False
    kinds = type(one.definition), type(other.definition)
    where = {kind.__module__ for kind in kinds}
    return kinds[0].__qualname__ == kinds[1].__qualname__ and (
        len(where) == 1 or bool(where & {"__main__", "__mp_main__"})
    )


def unregister(name: str) -> None:
    """Forgets a skill that is not in the box."""
    spec = _specs.get(name)
    if spec is not None and _rank(spec) == len(_IN_THE_BOX):
        del _specs[name]
        _state["version"] += 1


@contextlib.contextmanager
def registered(spec: SkillSpec) -> Iterator[SkillSpec]:
    """A skill that is known inside `with` only, for tests."""
    register(spec)
    try:
        yield spec
    finally:
        unregister(spec.name)


def specs() -> dict[str, SkillSpec]:
    """All skills by name: those in the box first, then others by their names."""
    _find()
    # While ours are imported, one may be registered before its module has it under a name.
    order = _ordered(_state["version"]) if _state["whole"] else _in_order()
    return dict(order)


@functools.lru_cache(maxsize=1)
def _ordered(version: int) -> tuple[tuple[str, SkillSpec], ...]:
    """As `_in_order`, once for each version: settings ask a thousand times in between."""
    return _in_order()


def _in_order() -> tuple[tuple[str, SkillSpec], ...]:
    own = [spec for spec in _specs.values() if _rank(spec) < len(_IN_THE_BOX)]
    others = [spec for spec in _specs.values() if _rank(spec) == len(_IN_THE_BOX)]
    ordered = [*sorted(own, key=_rank), *sorted(others, key=lambda spec: spec.name)]
    return tuple((spec.name, spec) for spec in ordered)


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


def check_name(name: str) -> None:
    """Refuses what is no skill, or no word at all.

    Raises:
        UserError: names the nearest, or all.
    """
    if not name:
        raise UserError(f"skill: choose one of {', '.join(names())}")
    get(name)


def carrying_out(action: str, chosen: Mapping[str, str] | None = None) -> SkillSpec:
    """The skill that carries out an action of the planning domain.

    Where several can, the one in the box does, unless `chosen` names another for the action.

    Raises:
        UserError: there is none, or the chosen one cannot; names the nearest.
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
    """The skills that are named for actions, "ACTION:SKILL" by commas.

    Raises:
        UserError: it does not read so, or a skill cannot carry out its action.
    """
    found = {}
    for pair in filter(None, text.split(",")):
        action, colon, skill = (part.strip() for part in pair.partition(":"))
        if not colon:
            raise UserError(f"actions: '{pair}' does not read ACTION:SKILL")
        found[action] = carrying_out(action, {action: skill}).name
    return found


def load_modules(names: str) -> str:
    """Imports modules that register skills, here and in every worker process from now on.

    Args:
        names: as `tpsrl.runtime.user_modules.UserModules.load` takes them

    Returns:
        The same with whole paths, good from any directory.

    Raises:
        UserError: one cannot be imported, or registers no skill.
    """
    _find()
    return _MODULES.load(names, _modules)


def _modules() -> dict[str, str]:
    """The modules that the definitions of the skills are from, by the skills' names."""
    return {name: type(spec.definition).__module__ for name, spec in _specs.items()}


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
            # Somebody else's package: whatever is wrong with it, the user has to know whose it is.
            raise UserError(f"skills: entry point '{point.value}' fails ({told(error)})") from error
        if isinstance(loaded, SkillSpec) and loaded.name not in _specs:
            register(loaded)
    _MODULES.load_passed_on()
