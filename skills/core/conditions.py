"""How the parts of a skill's success make one result."""

from collections.abc import Mapping

from skills.core.interface import Margin


def with_success(parts: Mapping[str, Margin]) -> dict[str, Margin]:
    """The parts, headed by "success": all of them hold.

    Its margin is that of the first part that does not hold, or of the first part when all do:
    units differ, so there is no smallest one.
    """
    decisive = next((part for part in parts.values() if not part.holds), next(iter(parts.values())))
    return {"success": decisive, **parts}
