"""One module a command, each with a `Command` called `COMMAND`.

A command that takes other keys for other words has instead a function `choose(word) -> Command`;
`word` is the first argument if it has no `=`, else None.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """What the command line needs to know of a command.

    `description` is what its help says, `settings` the dataclass of its keys (see `tpsrl.config`),
    `run(settings)` does it and returns the exit code; `positional` are the keys that words without
    `=` set, each the next one; or, with `repeated`, any number of words make a tuple, which is the
    value of this one key.

    `fixed` are the settings that stand for the word by which it was chosen. `load` makes settings
    of values by dotted key, where that is more than `tpsrl.config.load`. Help leaves `ignored`
    fields of `settings` out, which have no effect; they are refused.
    """

    description: str
    settings: type
    run: Callable[[Any], int]
    positional: tuple[str, ...] = ()
    fixed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    load: Callable[[Mapping[str, Any]], Any] | None = None
    repeated: str = ""
    ignored: Collection[str] = ()
