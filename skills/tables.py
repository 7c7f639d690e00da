"""Dataclasses with a field for each skill, derived from the registry.

Settings need them (`protocol.skills.NAME...`, `skills.NAME=PATH`), and which skills there are is
known only when the program runs.
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
    """Base of such dataclasses: an entry by the name of a skill."""

    __slots__ = ()

    def of(self, skill: str) -> Any:
        """The entry of a skill.

        Raises:
            UserError: there is none; names the nearest.
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
    """A frozen dataclass with these entries, and with the fields of the dataclass `beside`.

    `maker`, a function of a module that makes the class, is how another process finds it. The same
    entries give the same class.

    Raises:
        UserError: the default of an entry is not a frozen dataclass of plain values.
    """
    entries = tuple(entries)
    for key, _, default in entries:
        try:
            hash(default)
        except TypeError:
            kind = type(default).__name__
            raise UserError(f"skill {key}: {kind} must be frozen, its values plain ones") from None
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
    """The class of all skills' thresholds; `thresholds(protocol)` makes one."""
    specs = registry.specs().items()
    entries = [(n, type(s.thresholds), s.thresholds) for n, s in specs]
    return make("SkillThresholds", entries, thresholds_table)


def thresholds(protocol: str = DEFAULT_PROTOCOL) -> Any:
    """When each skill has succeeded, by a protocol's numbers."""
    return thresholds_table()(
        **{name: spec.values(protocol).thresholds for name, spec in registry.specs().items()}
    )


def alone_table() -> type:
    """The class of all skills' limits when run by themselves; `alone(protocol)` makes one."""
    return make("AloneLimits", limit_entries(lambda spec: spec.values().alone), alone_table)


def alone(protocol: str = DEFAULT_PROTOCOL) -> Any:
    """The limits of each skill when it is run by itself, by a protocol's numbers."""
    return alone_table()(
        **{name: spec.values(protocol).alone for name, spec in registry.specs().items()}
    )


def limit_entries(
    of: Callable[[SkillSpec], Any], names: Iterable[str] | None = None
) -> list[Entry]:
    """The entries of a table of limits, for all skills or some."""
    chosen = registry.names() if names is None else names
    return [(name, type(of(registry.get(name))), of(registry.get(name))) for name in chosen]


def paths_table() -> type:
    """The class of the checkpoints that act for skills: a path for each, or None."""
    entries: list[Entry] = [(name, str | None, None) for name in registry.names()]
    return make("LearnedSkills", entries, paths_table, LearnedPaths)


def task_keys() -> dict[str, str]:
    """The settings of the tasks of all skills, with their help; that of several skills for one."""
    found: dict[str, str] = {}
    for spec in registry.specs().values():
        for field in dataclasses.fields(spec.load_settings()):
            found.setdefault(field.name, field.metadata.get("help", ""))
    return found


def threshold_keys() -> dict[str, str]:
    """The success thresholds of all skills, with their help; that of several skills for one."""
    found: dict[str, str] = {}
    for spec in registry.specs().values():
        for field in dataclasses.fields(spec.thresholds):
            found.setdefault(field.name, field.metadata.get("help", ""))
    return found


class LearnedPaths(SkillTable):
    """For each skill the checkpoint, or the folder of a training, that acts for it."""

    __slots__ = ()

    def given(self) -> dict[str, str]:
        """The skills that have one."""
        entries = dataclasses.fields(self)  # type: ignore[arg-type]
        found = {field.name: getattr(self, field.name) for field in entries}
        return {name: path for name, path in found.items() if path is not None}


def _default(value: Any) -> Any:
    # Frozen dataclasses are as good as immutable, but dataclasses refuse what has no hash.
    return dataclasses.field(default_factory=lambda: value)


def _rebuilt(maker: Callable[[], type], values: dict[str, Any]) -> Any:
    return maker()(**values)
