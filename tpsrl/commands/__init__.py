"""Subcommands of `tpsrl`: one module each, with a `Command` named `COMMAND`.

A command whose keys depend on its first word has a function `choose(word) -> Command` instead;
`word` is the first argument if it has no `=`, else None.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """Definition of a subcommand.

    Attributes:
        description: text of the help
        settings: dataclass of the keys (see `tpsrl.config`)
        run: runs the command with its settings and returns the exit code
        positional: keys that words without `=` set, in order
        fixed: settings that are given by the command's first word
        load: makes settings from values by dotted key; None: `tpsrl.config.load`
        repeated: key whose value is the tuple of all words without `=`
        ignored: fields of `settings` without effect, which help omits and which are refused
    """

    description: str
    settings: type
    run: Callable[[Any], int]
    positional: tuple[str, ...] = ()
    fixed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    load: Callable[[Mapping[str, Any]], Any] | None = None
    repeated: str = ""
    ignored: Collection[str] = ()
