"""Commands whose first word is a skill, which `skill=` may name as well."""

import dataclasses
import functools

from skills import registry
from tpsrl.commands import Command
from tpsrl.training import loading


def of_skill(word: str | None, command: Command) -> Command:
    """Returns a command for its first word: a skill, "" without arguments, None before settings.

    Raises:
        UserError: there is no such skill; names the nearest.
    """
    if command.load is None:
        load = functools.partial(loading.of_skill, command.settings)
        command = dataclasses.replace(command, load=load)
    if word is None:
        return command
    registry.check_name(word)
    return dataclasses.replace(command, fixed={"skill": word})
