"""Commands whose first word is a skill, which `skill=` may name as well."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from tpsrl import config
from tpsrl.commands import Command
from tpsrl.errors import UserError, unknown


def of_skill(word: str | None, command: Command) -> Command:
    """The command for the word after it; "" when nothing follows, None when settings do.

    One without a `load` of its own has this module's.

    Raises:
        UserError: there is no such skill; names the nearest.
    """
    if command.load is None:
        loading = functools.partial(load, command.settings)
        command = dataclasses.replace(command, load=loading)
    if word is None:
        return command
    check_skill(word)
    return dataclasses.replace(command, fixed=(f"skill={word}",))


def check_skill(name: str) -> None:
    """Refuses what is no skill, or no word at all.

    Raises:
        UserError: names the nearest, or all.
    """
    from skills.registry import names

    known = names()
    if not name:
        raise UserError(f"skill: choose one of {', '.join(known)}")
    if name not in known:
        raise unknown("skill", name, known)


def load(schema: type[Any], overrides: Sequence[str]) -> Any:
    """Settings with a field `skill` that is one.

    Raises:
        UserError: a setting is not valid.
    """
    settings: Any = config.load(schema, overrides)
    check_skill(settings.skill)
    return settings
