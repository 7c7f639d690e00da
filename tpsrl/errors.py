"""Errors that a user caused and can mend."""

import difflib
from collections.abc import Iterable

_SHOWN = 12  # valid values that a message lists


class UserError(Exception):
    """Bad input. The command line prints the message on one line and exits with code 2.

    A message names the field, what was given and the nearest valid value.
    """


def unknown(field: str, given: object, valid: Iterable[str]) -> UserError:
    """A `UserError` for a value outside a closed set, naming the nearest valid one."""
    options = sorted(str(v) for v in valid)
    close = difflib.get_close_matches(str(given), options, n=1, cutoff=0.0)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    shown = ", ".join(options[:_SHOWN])
    if len(options) > _SHOWN:
        shown += f" and {len(options) - _SHOWN} more"
    return UserError(f"{field}: unknown value '{given}'{hint} (valid: {shown})")


class RunError(Exception):
    """A run that could not go on though its input was good.

    The command line prints the message and exits with code 1.
    """
