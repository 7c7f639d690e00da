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
from tpsrl.errors import unknown


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
    entries: Iterable[tuple[str, Any, Any]],
    maker: Callable[[], type],
    base: type = SkillTable,
) -> type:
    """A frozen dataclass with these fields: name, type, and default or dataclass field.

    `maker`, a function of a module that makes the class, is how another process finds it.
    """

    def reduce(self: Any) -> Any:
        return _rebuilt, (maker, {f.name: getattr(self, f.name) for f in dataclasses.fields(self)})

    fields = [
        (key, kind, value if isinstance(value, dataclasses.Field) else _default(value))
        for key, kind, value in entries
    ]
    return dataclasses.make_dataclass(
        name, fields, bases=(base,), frozen=True, namespace={"__reduce__": reduce}
    )


def thresholds_table() -> type:
    """The class of all skills' thresholds; `thresholds(protocol)` makes one."""
    return _thresholds_table(registry.version())


def thresholds(protocol: str = DEFAULT_PROTOCOL) -> Any:
    """When each skill has succeeded, by a protocol's numbers."""
    return thresholds_table()(
        **{name: spec.values(protocol).thresholds for name, spec in registry.specs().items()}
    )


@functools.lru_cache(maxsize=1)
def _thresholds_table(version: int) -> type:
    specs = registry.specs().items()
    entries = [(n, type(s.thresholds), s.thresholds) for n, s in specs]
    return make("SkillThresholds", entries, thresholds_table)


def alone_table() -> type:
    """The class of all skills' limits when run by themselves; `alone(protocol)` makes one."""
    return _alone_table(registry.version())


def alone(protocol: str = DEFAULT_PROTOCOL) -> Any:
    """The limits of each skill when it is run by itself, by a protocol's numbers."""
    return alone_table()(
        **{name: spec.values(protocol).alone for name, spec in registry.specs().items()}
    )


@functools.lru_cache(maxsize=1)
def _alone_table(version: int) -> type:
    return make("AloneLimits", limit_entries(lambda spec: spec.values().alone), alone_table)


def limit_entries(of: Callable[[SkillSpec], Any], names: Iterable[str] | None = None) -> list[Any]:
    """The entries of a table of limits, for all skills or some."""
    chosen = registry.names() if names is None else names
    return [(name, type(of(registry.get(name))), of(registry.get(name))) for name in chosen]


def paths_table() -> type:
    """The class of the checkpoints that act for skills: a path for each, or None."""
    return _paths_table(registry.version())


@functools.lru_cache(maxsize=1)
def _paths_table(version: int) -> type:
    entries = [(name, str | None, None) for name in registry.names()]
    return make("LearnedSkills", entries, paths_table, LearnedPaths)


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
