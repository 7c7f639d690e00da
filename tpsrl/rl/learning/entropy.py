"""The entropy coefficient: the multiplier of a minimum-entropy constraint (VER, section 4)."""

import math

import torch

from tpsrl.rl.learning.guarded_adam import GuardedAdam
from tpsrl.rl.learning.settings import PPOSettings

_NAME = "log_alpha"
_UPDATES = 100  # in which the coefficient moves by a factor of ten, unless its rate is given


class EntropyCoefficient:
    """alpha of the bonus alpha H in the policy's loss, learned so that the entropy H stays up.

    It rises while the entropy is under the target and falls while it is above, as a multiplier of
    the constraint H >= target has to, which minimises alpha (H - target) (Haarnoja et al. 2018,
    equation 18). The sign is the opposite of the formula as the VER paper prints it, which taken
    literally lets go of the entropy when there is too little.

    What is minimised, by Adam, is log(alpha) (H - target), and alpha is put back into its bounds
    after each step. The sign is the same, but the gradient does not shrink with alpha: an alpha
    that has fallen low is back as fast as it went when the entropy needs it.

    Args:
        initial: alpha at first; 0 is no bonus, and stays
        lowest, highest: its bounds
        target: entropy in nats, of all unmasked action dimensions together
        learning_rate: of log alpha; 0 keeps alpha as it is
        device: of the losses
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
        # In double precision, so that an alpha which is kept is the one that was given.
        self.log_alpha = torch.tensor(_log(initial), dtype=torch.float64, device=device)
        self._fixed = learning_rate == 0.0 or initial == 0.0
        self._optimizer = GuardedAdam({_NAME: self.log_alpha}, learning_rate)

    @property
    def value(self) -> torch.Tensor:
        """alpha (), float32, without gradient."""
        return self.log_alpha.exp().float()

    def update(self, slack: torch.Tensor, skip: torch.Tensor | None = None) -> None:
        """One step on log(alpha) * slack.

        Args:
            slack: () mean of weight * (entropy - target), without gradient
            skip: () float, nothing changes where it is 1
        """
        if self._fixed:
            return
        self.log_alpha.grad = slack.double()
        self._optimizer.step(skip)
        self.log_alpha.clamp_(*self._bounds)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """log alpha and what its optimizer remembers."""
        moments = self._optimizer.state_dict().items()
        own = {_NAME: self.log_alpha.cpu().clone()}
        return own | {name.removesuffix(f".{_NAME}"): tensor for name, tensor in moments}

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        """Goes on from a state; bounds, target and an alpha that is kept are of this object.

        So is one that is learned from here on, where there was no bonus.
        """
        moments = {f"{name}.{_NAME}": t for name, t in tensors.items() if name != _NAME}
        self._optimizer.load_state_dict(moments)
        if not self._fixed and bool(torch.isfinite(tensors[_NAME])):
            self.log_alpha.copy_(tensors[_NAME])
            self.log_alpha.clamp_(*self._bounds)


def coefficient_of(settings: PPOSettings, device: torch.device | str) -> EntropyCoefficient:
    """The coefficient that settings ask for, which were checked.

    Unless its rate is given, it is such that a coefficient which always moves the same way, by
    Adam's steps of one rate each, moves by a factor of ten in a hundred updates, of however many
    mini-batches.
    """
    initial, target = settings.entropy_coef, settings.entropy_target
    low, high = settings.entropy_min, settings.entropy_max
    rate = settings.entropy_learning_rate
    if rate is None:
        rate = math.log(10.0) / _UPDATES / (settings.epochs * settings.minibatches)
    rate = rate if settings.entropy_learned else 0.0
    return EntropyCoefficient(initial, low, high, target, rate, device)


def _log(value: float) -> float:
    """Of 0 too."""
    return math.log(value) if value > 0.0 else -math.inf
