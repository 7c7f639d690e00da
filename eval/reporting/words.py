"""How shares and margins read."""


def percent(value: float | None) -> str:
    """A share as a percentage, "-" when it was not measured."""
    return "-" if value is None else f"{100 * value:.1f}%"


def signed(margin: float | None, unit: str) -> str:
    """A margin with its unit; yes-or-no facts have no size to show."""
    return "" if margin is None or unit == "bool" else f"{margin:+.3g} {unit}"
