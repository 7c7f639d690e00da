"""Whether a training fits into memory, before any of it is allocated.

Only what is sure to be there is counted, so what is refused could not have been trained; what is
let through may still be too much for a machine that does other things as well.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tpsrl import machine
from tpsrl.errors import UserError
from tpsrl.rl.run.settings import TrainSettings

_NUMBER = 4  # bytes of a float32
_LEARNED = 4  # of a weight: itself, its gradient, Adam's two moments
_HOME = 500_000  # bytes that a further home takes, measured with 12 objects
_ROW = 100  # numbers of a step beside camera and memory, at least


def check(settings: TrainSettings, depth: int, prefix: str = "preset.") -> None:
    """Refuses a training for which this machine has not the memory.

    Args:
        settings: rollouts and network
        depth: height and width of the camera's pictures, pixels
        prefix: stands before the names of fields of `settings`

    Raises:
        UserError: names the field that is farthest from fitting, and the largest value of it that
            fits.
    """
    limit = machine.memory_bytes()
    given = {
        "depth": depth,
        f"{prefix}num_envs": settings.num_envs,
        f"{prefix}num_steps": settings.num_steps,
        f"{prefix}policy.lstm_width": settings.policy.lstm_width,
        f"{prefix}policy.lstm_layers": settings.policy.lstm_layers,
        f"{prefix}policy.state_width": settings.policy.state_width,
        f"{prefix}policy.state_layers": settings.policy.state_layers,
        f"{prefix}policy.encoder_width": settings.policy.encoder_width,
        f"{prefix}policy.visual_width": settings.policy.visual_width,
    }
    refuse(given, lambda values: _bytes(settings, *values.values()), limit)


def refuse(
    given: Mapping[str, int], needed: Callable[[Mapping[str, int]], float], limit: float
) -> None:
    """Refuses whole numbers that need more bytes than there are.

    Args:
        given: by the names of their fields
        needed: the bytes that such numbers need, which grow with each of them
        limit: the bytes that there are

    Raises:
        UserError: names a field, and the largest value of it that fits; if one alone does not
            bring it within the limit, the one without which least is needed.
    """
    total = needed(given)
    if total <= limit:
        return
    fitting = {name: _largest(name, given, needed, limit) for name in given}
    within = {name: value for name, value in fitting.items() if value}
    if within:
        worst = min(within, key=lambda name: within[name] / given[name])
        hint = f"{within[worst]:,} would fit"
    else:
        worst = min(given, key=lambda name: needed({**given, name: 1}))
        others = {name: 1 for name in given if name != worst}
        most = _largest(worst, {**given, **others}, needed, limit)
        hint = f"{most:,} would be the most, with all else small"
    raise UserError(
        f"{worst}: {given[worst]} needs {_gib(total)} of memory here, this machine has "
        f"{_gib(limit)}; {hint}"
    )


def _largest(
    name: str, given: Mapping[str, int], needed: Callable[[Mapping[str, int]], float], limit: float
) -> int:
    """The largest value of one number that fits, the others being as given; 0 if none does."""
    low, high = 0, given[name]
    while low < high:
        middle = (low + high + 1) // 2
        if needed({**given, name: middle}) <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def _bytes(settings: TrainSettings, *values: Any) -> float:
    """At least so many bytes a training takes with these in place of its own."""
    depth, num_envs, num_steps, width, layers, state_width, state_layers, channels, visual = values
    net = settings.policy
    sees = net.encoder != "state"
    picture = depth * depth if sees else 0
    memory = 2 * width * layers * (2 if net.separate_value else 1)
    rows = num_envs * (num_steps + 1)
    rollouts = 2 if settings.collector == "overlap" else 1
    kept = rollouts * rows * (picture + memory + _ROW) * _NUMBER
    homes = num_envs * (_HOME + picture * _NUMBER)
    weights = 8 * width * width * layers + (state_layers - 1) * state_width**2
    weights += width * state_width * 4 * bool(layers)
    if sees:
        weights += 9 * channels + 4 * width * visual * bool(layers)
    return kept + homes + weights * (2 if net.separate_value else 1) * _LEARNED * _NUMBER


def _gib(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB" if size < 2**60 else "more than 10^9 GiB"
