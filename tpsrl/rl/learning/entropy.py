"""The entropy coefficient: the multiplier of a minimum-entropy constraint (VER, section 4)."""

import math

import torch


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
        initial: alpha at the start
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
        self._bounds = (math.log(lowest), math.log(highest))
        # In double precision, so that an alpha which is kept is the one that was given.
        self.log_alpha = torch.tensor(math.log(initial), dtype=torch.float64, device=device)
        self._fixed = learning_rate == 0.0
        self.optimizer = torch.optim.Adam([self.log_alpha], lr=learning_rate, fused=True)
        self.optimizer.state[self.log_alpha] = {
            "step": torch.zeros((), device=device),
            "exp_avg": torch.zeros_like(self.log_alpha),
            "exp_avg_sq": torch.zeros_like(self.log_alpha),
        }

    @property
    def value(self) -> torch.Tensor:
        """alpha (), float32, without gradient."""
        return self.log_alpha.exp().float()

    def update(
        self, entropy: torch.Tensor, weight: torch.Tensor, skip: torch.Tensor | None = None
    ) -> None:
        """One step on the mean of weight * log(alpha) * (entropy - target).

        Args:
            entropy: (k,) of the policy, without gradient
            weight: (k,) of the steps
            skip: () float, nothing changes where it is 1
        """
        if self._fixed:
            return
        self.log_alpha.grad = (weight * (entropy - self.target)).mean().double()
        # The fused optimizer leaves everything as it was where this is 1.
        self.optimizer.found_inf = skip  # type: ignore[attr-defined]
        self.optimizer.step()
        self.log_alpha.clamp_(*self._bounds)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """log alpha and what its optimizer remembers."""
        state = self.optimizer.state[self.log_alpha]
        tensors = {"log_alpha": self.log_alpha, **state}
        return {name: tensor.cpu().clone() for name, tensor in tensors.items()}

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        """Goes on from a state; bounds and target are those of this object."""
        self.log_alpha.copy_(tensors["log_alpha"])
        for name, tensor in self.optimizer.state[self.log_alpha].items():
            tensor.copy_(tensors[name])
        self.log_alpha.clamp_(*self._bounds)
