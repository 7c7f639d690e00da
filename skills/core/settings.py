"""Task settings of a skill: horizon, force limits, reward weights."""

import dataclasses
import numbers
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from tpsrl import config
from tpsrl.errors import UserError, unknown

LARGEST_WEIGHT = 1e6  # of a reward or penalty; larger ones would drown all other terms


@dataclasses.dataclass(frozen=True, slots=True)
class TaskSettings:
    """Horizon, force limits and reward weights that all skills share.

    Weights of penalties are positive. Skills add weights of their own; `configs/skill/NAME.yaml`
    has the values of built-in skills. Limits are in newtons, None for no limit;
    `skills.core.task.step` defines the forces that they apply to.
    """

    horizon: int = config.option(300, "control steps until truncation", minimum=1)
    force_total_n: float | None = config.option(
        None, "limit on the accumulated force (N)", minimum=0
    )
    force_instant_n: float | None = config.option(
        None, "limit on the force of a single step (N)", minimum=0
    )
    success: float = config.option(10.0, "reward for success")
    slack: float = config.option(0.0, "penalty per step")
    constraint: float = config.option(0.0, "penalty for a step that breaks the hold")
    force: float = config.option(0.0, "penalty per newton of force increase")
    force_cap: float = config.option(0.0, "maximum force penalty of a step")
    force_end: float = config.option(0.0, "penalty for exceeding a force limit")
    way: float = config.option(
        0.0, "reward per metre of progress along the floor to a place within reach of the goal"
    )
    hand: float = config.option(
        0.0, "reward per metre of progress of the cup to the goal, along a path around furniture"
    )
    speed: float = config.option(
        0.0, "penalty per step and (m/s)^2 of base speed; 1 rad/s counts as 0.5 m/s"
    )
    joints: float = config.option(
        0.0,
        "penalty per metre or radian of motion of other drawers and doors",
        minimum=0,
    )
    clutter: float = config.option(
        0.0,
        "penalty per metre of motion of other objects, and of one that is still to be picked",
        minimum=0,
    )
    near: float = config.option(
        0.0,
        "penalty per step and metre by which another object is less than 0.05 m from the cup on "
        "its way to the goal",
        minimum=0,
    )
    grip: float = config.option(
        0.0,
        "penalty per step with the grip closed where it should be open: away from the object to "
        "pick, or with the object at its goal",
        minimum=0,
    )
    wrong_stop: float = config.option(
        0.0, "penalty for calling stop before success, which ends the episode", minimum=0
    )


SettingsT = TypeVar("SettingsT", bound=TaskSettings)

# Shared weights that are subtracted from the reward.
PENALTIES = (
    "slack", "constraint", "force", "force_end", "speed", "joints", "clutter", "near",
    "grip", "wrong_stop",
)  # fmt: skip
_LIMITS = ("force_total_n", "force_instant_n")


def changed(settings: SettingsT, changes: Mapping[str, Any], field: str = "settings") -> SettingsT:
    """Returns a copy of settings with changed entries.

    The absolute value of a weight without a range of its own is at most `LARGEST_WEIGHT`.

    Args:
        settings: the original settings
        changes: new values by name; numpy's numbers are accepted
        field: name of the option that holds `changes`, for error messages

    Raises:
        UserError: an entry is unknown (the message names the nearest), or its value has the wrong
            type or is out of range.
    """
    changes = {name: _plain(value) for name, value in changes.items()}
    kinds = typing.get_type_hints(type(settings))
    names = [one.name for one in dataclasses.fields(settings)]
    for name, value in changes.items():
        if name not in names:
            raise unknown(field, name, names)
        if typing.get_origin(kinds[name]) is typing.Literal:
            if value not in typing.get_args(kinds[name]):
                raise unknown(f"{field}.{name}", value, typing.get_args(kinds[name]))
            continue
        limit = name in _LIMITS and value is None
        if not limit and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise UserError(f"{field}.{name}: {value!r} is not a number")
        config.check_range(type(settings), name, value, field)
        if not limit and kinds[name] is float and abs(value) > LARGEST_WEIGHT:
            raise UserError(
                f"{field}.{name}: {value} is out of range, must be between {-LARGEST_WEIGHT:g} and "
                f"{LARGEST_WEIGHT:g}"
            )
        if kinds[name] is int and value != int(value):
            raise UserError(f"{field}.{name}: {value} is not an integer")
    return dataclasses.replace(settings, **changes)


def _plain(value: Any) -> Any:
    """Converts numpy's numbers to Python's; other values are returned unchanged."""
    if isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else value
