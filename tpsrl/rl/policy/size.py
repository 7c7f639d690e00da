"""Number of weights of a network, computed without allocating them."""

import itertools

from tpsrl.config import MOST_PIXELS
from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.policy.settings import ENCODER_NAMES, TIMM, PolicySettings

_ORDINARY = 2**26  # weights, 256 MiB
_ORDINARY_CHANNELS = 256
_ORDINARY_VECTOR = 4096  # size of the visual features
_WIDEST_INPUT = 2**16


def least(settings: PolicySettings, inputs: int = 1) -> int:
    """Returns a lower bound of a network's number of weights, from its widths alone.

    A separate value network counts as well. `inputs` is the number of state inputs.
    """
    width, layers = settings.lstm_width, settings.lstm_layers
    widths = [inputs, *settings.state_widths]
    count = sum(before * after for before, after in itertools.pairwise(widths))
    if layers:  # four gates per layer, with inputs from the layer below and the layer itself
        count += 4 * width * (widths[-1] + width + 2 * width * (layers - 1))
    if settings.encoder != "state" and not settings.encoder.startswith(TIMM):
        # Every built-in encoder has at least one weight per pair of channels in some layer.
        inner = settings.encoder_width**2 if settings.encoder in ENCODER_NAMES else 0
        count += 9 * settings.encoder_width + inner
        count += 4 * width * settings.visual_width * bool(layers)
    return count * (2 if settings.separate_value else 1)


def is_ordinary(settings: PolicySettings) -> bool:
    """Returns whether a network is small enough for the memory of any machine."""
    narrow = settings.encoder_width <= _ORDINARY_CHANNELS
    short = settings.visual_width <= _ORDINARY_VECTOR
    return least(settings) <= _ORDINARY and narrow and short


def count(spec: EnvSpec, settings: PolicySettings) -> int | None:
    """Returns a network's number of weights; None if a custom encoder fails on device "meta".

    The network is built on torch's device "meta", without allocating memory, which takes two
    seconds the first time.

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
    """Returns whether observations or actions are larger than those of any environment."""
    pictures = [shape for shape in spec.observations.values() if len(shape) > 1]
    sides = [side for shape in pictures for side in shape]
    vectors = [shape[0] for shape in spec.observations.values() if len(shape) == 1]
    widest = max(*vectors, spec.action_size)
    return widest > _WIDEST_INPUT or max(sides, default=0) > MOST_PIXELS
