"""One module a command, each with

- `DESCRIPTION`, what its help says;
- `POSITIONAL`, the keys that words without `=` set;
- `Settings`, the dataclass of its keys (see `tpsrl.config`);
- `run(settings) -> int`, which does it and returns the exit code.

A command that takes other keys for other words has, instead of these four, a function
`choose(word) -> Command`; `word` is the first argument if it has no `=`, else None.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """What the command line needs to know of a command.

    `fixed` are the settings (key=value) that stand for the word by which it was chosen. `load`
    makes the settings of the overrides, where that is more than `tpsrl.config.load`.
    """

    description: str
    settings: type
    run: Callable[[Any], int]
    positional: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    load: Callable[[Sequence[str]], Any] | None = None
