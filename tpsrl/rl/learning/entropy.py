"""The entropy coefficient: the multiplier of a minimum-entropy constraint (VER, section 4)."""

import math

import torch

from tpsrl.rl.learning.guarded_adam import GuardedAdam
from tpsrl.rl.learning.settings import PPOSettings

_NAME = "log_alpha"
_UPDATES = 100  # updates per factor of ten of the coefficient, at the default rate


class EntropyCoefficient:
    """Coefficient alpha of the entropy bonus alpha H, learned to keep the entropy H at a target.

    alpha rises while the entropy is below the target and falls while it is above, as the multiplier
    of the constraint H >= target, which minimises alpha (H - target) (Haarnoja et al. 2018,
    equation 18). The sign is the opposite of the formula printed in the VER paper, which taken
    literally lowers alpha when there is too little entropy.

    Adam minimises log(alpha) (H - target), and alpha is clamped to its bounds after each step. The
    sign of the gradient is the same, but its size does not shrink with alpha: a low alpha recovers
    as fast as it fell.

    Args:
        initial: initial alpha; 0: no bonus, and alpha stays 0
        lowest, highest: bounds of alpha
        target: entropy in nats, summed over all unmasked action dimensions
        learning_rate: learning rate of log alpha; 0: alpha is fixed
        device: device of the losses
    """

    def __init__(
        self,
        initial: float,
        lowest: float,
        highest: float,
        target: float,
        learning_rate: float,
        device: torch.device | str = "cpu",
    ) -> None:
        self.target = target
        self._bounds = (_log(lowest), _log(highest))
        # In double precision, so that a fixed alpha equals the given one.
        self.log_alpha = torch.tensor(_log(initial), dtype=torch.float64, device=device)
        self._fixed = learning_rate == 0.0 or initial == 0.0
        self._optimizer = GuardedAdam({_NAME: self.log_alpha}, learning_rate)

    @property
    def value(self) -> torch.Tensor:
        """alpha (), float32, without gradient."""
        return self.log_alpha.exp().float()

    def update(self, slack: torch.Tensor, skip: torch.Tensor | None = None) -> None:
        """Makes one step on log(alpha) * slack.

        Args:
            slack: () mean of weight * (entropy - target), without gradient
            skip: () float; where it is 1, alpha and the optimizer stay unchanged
        """
        if self._fixed:
            return
        self.log_alpha.grad = slack.double()
        self._optimizer.step(skip)
        self.log_alpha.clamp_(*self._bounds)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Returns log alpha and the moments of its optimizer."""
        moments = self._optimizer.state_dict().items()
        own = {_NAME: self.log_alpha.cpu().clone()}
        return own | {name.removesuffix(f".{_NAME}"): tensor for name, tensor in moments}

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restores a state; bounds, target and a fixed alpha stay those of this object.

        A learned alpha also stays that of this object if the saved one was 0, that is without
        bonus.
        """
        moments = {f"{name}.{_NAME}": t for name, t in tensors.items() if name != _NAME}
        self._optimizer.load_state_dict(moments)
        if not self._fixed and bool(torch.isfinite(tensors[_NAME])):
            self.log_alpha.copy_(tensors[_NAME])
            self.log_alpha.clamp_(*self._bounds)


def coefficient_of(settings: PPOSettings, device: torch.device | str) -> EntropyCoefficient:
    """Creates the entropy coefficient of checked settings.

    By default its learning rate is such that a coefficient which always moves in one direction, by
    one learning rate per step of Adam, changes by a factor of ten in a hundred updates, for any
    number of mini-batches.
    """
    initial, target = settings.entropy_coef, settings.entropy_target
    low, high = settings.entropy_min, settings.entropy_max
    rate = settings.entropy_learning_rate
    if rate is None:
        rate = math.log(10.0) / _UPDATES / (settings.epochs * settings.minibatches)
    rate = rate if settings.entropy_learned else 0.0
    return EntropyCoefficient(initial, low, high, target, rate, device)


def _log(value: float) -> float:
    """Returns the logarithm, -inf for 0."""
    return math.log(value) if value > 0.0 else -math.inf
