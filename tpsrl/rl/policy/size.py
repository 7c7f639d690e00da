"""How many weights a network has, found before any memory is taken for them."""

import itertools

from tpsrl.config import MOST_PIXELS
from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.policy.settings import ENCODER_NAMES, PolicySettings

_ORDINARY = 2**26  # weights: 256 MiB of them
_ORDINARY_CHANNELS = 256
_ORDINARY_VECTOR = 4096  # numbers that a picture is summed up in
_WIDEST_INPUT = 2**16


def least(settings: PolicySettings, inputs: int = 1) -> int:
    """So many weights at least a network has, counted by its widths alone.

    Two networks if the value has one of its own. `inputs` are the numbers of the state that it is
    shown.
    """
    width, layers = settings.lstm_width, settings.lstm_layers
    widths = [inputs, *settings.state_widths]
    count = sum(before * after for before, after in itertools.pairwise(widths))
    if layers:  # four gates each, of what is below and of itself
        count += 4 * width * (widths[-1] + width + 2 * width * (layers - 1))
    if settings.encoder != "state":
        # No encoder in the box has fewer between channels and channels than one of each to each.
        inner = settings.encoder_width**2 if settings.encoder in ENCODER_NAMES else 0
        count += 9 * settings.encoder_width + inner
        count += 4 * width * settings.visual_width * bool(layers)
    return count * (2 if settings.separate_value else 1)


def is_ordinary(settings: PolicySettings) -> bool:
    """Whether a network is of a size that any machine has the memory for."""
    narrow = settings.encoder_width <= _ORDINARY_CHANNELS
    short = settings.visual_width <= _ORDINARY_VECTOR
    return least(settings) <= _ORDINARY and narrow and short


def count(spec: EnvSpec, settings: PolicySettings) -> int | None:
    """So many weights a network has; None where an encoder of a user's own cannot be asked.

    It is built without any memory, which takes two seconds the first time.

    Raises:
        UserError: see `ActorCritic`.
    """
    import torch

    from tpsrl.rl.policy.actor_critic import ActorCritic

    try:
        with torch.device("meta"):
            net = ActorCritic(spec, settings)
    except UserError:
        raise
    except Exception:
        return None
    return sum(weight.numel() for weight in net.parameters())


def takes_too_much(spec: EnvSpec) -> bool:
    """Whether what a network is to see is more than any environment shows."""
    pictures = [shape for shape in spec.observations.values() if len(shape) > 1]
    sides = [side for shape in pictures for side in shape]
    vectors = [shape[0] for shape in spec.observations.values() if len(shape) == 1]
    widest = max(*vectors, spec.action_size)
    return widest > _WIDEST_INPUT or max(sides, default=0) > MOST_PIXELS
