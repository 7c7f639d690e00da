"""Checks of whether a training fits into memory, before any of it is allocated.

Only memory that is certainly needed is counted. A training that is refused could not have run; one
that is accepted may still be too large for a machine that also does other work.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.policy import size
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.runtime import machine

_NUMBER = 4  # bytes of a float32
_LEARNED = 4  # numbers per weight: itself, its gradient, Adam's two moments
_USUAL: Mapping[str, Any] = dataclasses.asdict(PolicySettings())
_WIDTHS = (
    "lstm_width", "lstm_layers", "state_width", "state_layers", "encoder_width", "visual_width",
)  # fmt: skip
_RANK_BYTES = 400e6  # minimum of a process that has loaded PyTorch and MuJoCo
_ROW = 100  # minimum of numbers per step, beside camera and memory


def check(
    settings: TrainSettings, depth: int, prefix: str = "preset.", field: str = "depth"
) -> None:
    """Checks that this machine has the memory for a training.

    Args:
        settings: rollouts and network
        depth: height and width of a depth picture as large as all pictures together, pixels
        prefix: precedes the names of fields of `settings` in messages
        field: setting that determines the size of pictures

    Raises:
        UserError: names the field that is farthest from fitting, and the largest value of it that
            fits.
    """
    given = {
        field: depth,
        f"{prefix}num_envs": settings.num_envs,
        f"{prefix}num_steps": settings.num_steps,
        **_widths(settings.policy, prefix),
    }

    def needed(values: Mapping[str, int]) -> float:
        pixels, num_envs, num_steps, *widths = values.values()
        net = _changed(settings.policy, widths)
        rows = _rows(dataclasses.replace(settings, policy=net), pixels, num_envs, num_steps)
        return _network(net, depth, rows, limit)

    limit = machine.memory_bytes()
    machine.refuse(given, needed, limit, _USUAL)


def check_network(settings: PolicySettings, depth: int, prefix: str = "preset.") -> None:
    """Checks that this machine has the memory to train a network.

    Args:
        settings: settings of the network
        depth: height and width of the camera's pictures, pixels
        prefix: precedes the names of fields in messages

    Raises:
        UserError: as in `check`.
    """
    limit = machine.memory_bytes()
    machine.refuse(
        _widths(settings, prefix),
        lambda values: _network(_changed(settings, list(values.values())), depth, 0.0, limit),
        limit,
        _USUAL,
    )


def check_ranks(count: int, field: str = "ranks") -> None:
    """Checks that this machine has the memory for `count` ranks.

    Raises:
        UserError: names the largest number that fits.
    """
    machine.refuse(
        {field: count}, lambda given: given[field] * _RANK_BYTES, machine.memory_bytes(), {}
    )


def _widths(settings: PolicySettings, prefix: str) -> dict[str, int]:
    return {f"{prefix}policy.{name}": int(getattr(settings, name)) for name in _WIDTHS}


def _changed(settings: PolicySettings, widths: Sequence[int]) -> PolicySettings:
    new: dict[str, Any] = dict(zip(_WIDTHS, widths, strict=True))
    return dataclasses.replace(settings, **new)


def _rows(settings: TrainSettings, depth: int, num_envs: int, num_steps: int) -> float:
    """Returns a lower bound of the bytes of rollouts and environments."""
    net = settings.policy
    picture = depth * depth if net.encoder != "state" else 0
    memory = 2 * net.lstm_width * net.lstm_layers * (2 if net.separate_value else 1)
    rollouts = 2 if settings.collector == "overlap" else 1
    kept = rollouts * num_envs * (num_steps + 1) * (picture + memory + _ROW) * _NUMBER
    return float(kept + num_envs * (machine.HOME_BYTES + picture * _NUMBER))


def _network(settings: PolicySettings, depth: int, beside: float, limit: float) -> float:
    """Returns a lower bound of the bytes of a network in training, plus `beside`.

    The weights of an unusually large network that may still fit are counted exactly.
    """
    least = beside + size.least(settings) * _LEARNED * _NUMBER
    if least > limit or size.is_ordinary(settings):
        return least
    from tpsrl.rl.policy.actor_critic import CRITIC

    seen: dict[str, tuple[int, ...]] = {"state": (1,), CRITIC: (1,)}
    if settings.encoder != "state":
        seen["depth"] = (depth, depth)
    try:
        weights = size.count(EnvSpec(seen, (True,)), settings)
    except UserError:  # a picture that is too small, for example, is refused elsewhere
        weights = None
    return least if weights is None else beside + weights * _LEARNED * _NUMBER
