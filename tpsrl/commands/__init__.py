"""One module a command, each with a `Command` called `COMMAND`.

A command that takes other keys for other words has instead a function `choose(word) -> Command`;
`word` is the first argument if it has no `=`, else None.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """What the command line needs to know of a command.

    `description` is what its help says, `settings` the dataclass of its keys (see `tpsrl.config`),
    `run(settings)` does it and returns the exit code; `positional` are the keys that words without
    `=` set, each the next one; or, with `repeated`, any number of words set this one key, each time
    anew, of which `load` makes what it will.

    `fixed` are the settings (key=value) that stand for the word by which it was chosen. `load`
    makes the settings of the overrides, where that is more than `tpsrl.config.load`.
    """

    description: str
    settings: type
    run: Callable[[Any], int]
    positional: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    load: Callable[[Sequence[str]], Any] | None = None
    repeated: str = ""
