"""Dataclasses with a field for each skill, generated from the registry.

Settings such as `protocol.skills.NAME...` and `skills.NAME=PATH` need these classes, and the set of
skills is known only at run time.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any

from skills import registry
from skills.spec import DEFAULT_PROTOCOL, SkillSpec
from tpsrl.errors import UserError, unknown

Entry = tuple[str, Any, Any]  # name, type, default


class SkillTable:
    """Base of the generated dataclasses, whose fields are named after the skills."""

    __slots__ = ()

    def of(self, skill: str) -> Any:
        """Returns the entry of a skill.

        Raises:
            UserError: the table has no such skill; the message names the nearest.
        """
        names = [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]
        if skill not in names:
            raise unknown("skill", skill, names)
        return getattr(self, skill)


def make(
    name: str,
    entries: Iterable[Entry],
    maker: Callable[[], type],
    base: type = SkillTable,
    beside: type | None = None,
) -> type:
    """Creates a frozen dataclass with one field an entry; equal arguments give the same class.

    Args:
        name: name of the class
        entries: name, type and default of each field
        maker: module-level function that returns this class; instances are unpickled through it
        base: base class
        beside: dataclass whose fields are appended

    Raises:
        UserError: the default of an entry is not hashable: not a frozen dataclass of plain values.
    """
    entries = tuple(entries)
    for key, _, default in entries:
        try:
            hash(default)
        except TypeError:
            kind = type(default).__name__
            raise UserError(
                f"skill {key}: {kind} must be a frozen dataclass of plain values"
            ) from None
    return _made(name, entries, maker, base, beside)


@functools.lru_cache(maxsize=64)
def _made(
    name: str,
    entries: tuple[Entry, ...],
    maker: Callable[[], type],
    base: type,
    beside: type | None,
) -> type:
    def reduce(self: Any) -> Any:
        return _rebuilt, (maker, {f.name: getattr(self, f.name) for f in dataclasses.fields(self)})

    fields = [(key, kind, _default(value)) for key, kind, value in entries]
    for field in () if beside is None else dataclasses.fields(beside):
        copy = dataclasses.field(default=field.default, metadata=field.metadata)
        fields.append((field.name, field.type, copy))
    return dataclasses.make_dataclass(
        name, fields, bases=(base,), frozen=True, namespace={"__reduce__": reduce}
    )


def thresholds_table() -> type:
    """Returns the class of all skills' success thresholds; `thresholds` creates instances."""
    specs = registry.specs().items()
    entries = [(n, type(s.thresholds), s.thresholds) for n, s in specs]
    return make("SkillThresholds", entries, thresholds_table)


def thresholds(protocol: str = DEFAULT_PROTOCOL) -> Any:
    """Returns the success thresholds of each skill under a protocol."""
    return thresholds_table()(
        **{name: spec.values(protocol).thresholds for name, spec in registry.specs().items()}
    )


def alone_table() -> type:
    """Returns the class of all skills' limits outside a plan; `alone` creates instances."""
    return make("AloneLimits", limit_entries(lambda spec: spec.values().alone), alone_table)


def alone(protocol: str = DEFAULT_PROTOCOL) -> Any:
    """Returns the limits of each skill outside a plan, under a protocol."""
    return alone_table()(
        **{name: spec.values(protocol).alone for name, spec in registry.specs().items()}
    )


def limit_entries(
    of: Callable[[SkillSpec], Any], names: Iterable[str] | None = None
) -> list[Entry]:
    """Returns the entries of a table of limits.

    Args:
        of: gets the limits of a skill
        names: skills in the table; None for all
    """
    chosen = registry.names() if names is None else names
    return [(name, type(of(registry.get(name))), of(registry.get(name))) for name in chosen]


def paths_table() -> type:
    """Returns the class of checkpoint paths by skill, where None is no checkpoint."""
    entries: list[Entry] = [(name, str | None, None) for name in registry.names()]
    return make("LearnedSkills", entries, paths_table, LearnedPaths)


def task_keys() -> dict[str, str]:
    """Returns the help of all skills' task settings, by name; the first skill's text counts."""
    found: dict[str, str] = {}
    for spec in registry.specs().values():
        for field in dataclasses.fields(spec.load_settings()):
            found.setdefault(field.name, field.metadata.get("help", ""))
    return found


def threshold_keys() -> dict[str, str]:
    """Returns the help of all skills' thresholds, by name; the first skill's text counts."""
    found: dict[str, str] = {}
    for spec in registry.specs().values():
        for field in dataclasses.fields(spec.thresholds):
            found.setdefault(field.name, field.metadata.get("help", ""))
    return found


class LearnedPaths(SkillTable):
    """Path of the checkpoint or training folder that acts for each skill, or None."""

    __slots__ = ()

    def given(self) -> dict[str, str]:
        """Returns the paths that are set, by skill."""
        entries = dataclasses.fields(self)  # type: ignore[arg-type]
        found = {field.name: getattr(self, field.name) for field in entries}
        return {name: path for name, path in found.items() if path is not None}


def _default(value: Any) -> Any:
    # A factory avoids the check by which dataclasses refuse defaults without a hash as mutable.
    return dataclasses.field(default_factory=lambda: value)


def _rebuilt(maker: Callable[[], type], values: dict[str, Any]) -> Any:
    return maker()(**values)
