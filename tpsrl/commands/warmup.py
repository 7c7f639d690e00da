"""`tpsrl warmup`: compiles in advance what the first run would compile."""

import dataclasses

from tpsrl.commands import Command
from tpsrl.runtime import progress

DESCRIPTION = """Compiles the functions of engine, skills, environments and images in advance, so
that the first run starts at once. Takes about a minute, once for each installation; `make install`
includes it."""


@dataclasses.dataclass(frozen=True, slots=True)
class WarmupSettings:
    """Settings of `tpsrl warmup`, which has none."""


def run(settings: WarmupSettings) -> int:
    """Compiles all parts, and prints how long each took."""
    progress.say("compiling, about a minute; functions in the cache are skipped")
    from eval.running.warmup import warm_up

    for name, seconds in warm_up():
        progress.say(f"{name}: ready after {seconds:.0f} s")
    return 0


COMMAND = Command(DESCRIPTION, WarmupSettings, run)
