"""`tpsrl warmup`: compiles ahead of time what the first run would compile."""

import dataclasses

DESCRIPTION = """Compiles what the engine, the skills, their environments and the pictures need, so
that the first run does not have to: about a minute, once for each installation. `make` does it when
it installs."""
POSITIONAL = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """There is nothing to choose."""


def run(settings: Settings) -> int:
    """Compiles, and says how long each part took."""
    from eval.running.warmup import warm_up

    for name, seconds in warm_up().items():
        print(f"{name}: ready after {seconds:.0f} s")
    return 0
