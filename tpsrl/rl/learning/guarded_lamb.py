"""Lamb with BPS's clipped trust ratio and `GuardedAdam`'s guard.

Large mini-batches allow high learning rates, but layers tolerate different step sizes. Lamb (You et
al. 2020, algorithm 2) takes Adam's direction and scales it per layer to the norm of the layer's
weights. Large Batch Simulation (Shacklett et al. 2021, equations 1 and 2) limits that norm to 10
and clips the ratio.
"""

import math
from collections.abc import Collection, Mapping

import torch

from tpsrl.rl.learning.guarded_adam import GuardedAdam

_LARGEST_NORM = 10.0  # phi(x) = min(x, 10)
_BETAS = 0.9, 0.999
_NOT_DECAYED = ("log_std",)  # decay would pull every standard deviation to 1


class GuardedLamb(GuardedAdam):
    """Steps of -rate * ratio * direction, direction = Adam's step + `weight_decay` * weights.

    The ratio is `trust_ratio` for matrices and kernels. It is 1 for parameters with fewer axes
    (biases and Fixup's scalars: Shacklett et al., appendix B), which therefore get AdamW's steps.

    Args:
        parameters: parameters by name, all on one device; changed in place
        learning_rate: initial learning rate; `set_rates` changes it
        eps: Adam's epsilon
        apart: names of parameters that may have a separate learning rate
        weight_decay: lambda; standard deviations are not decayed
        trust_min: rho, the minimum ratio; the maximum is its inverse
    """

    def __init__(
        self,
        parameters: Mapping[str, torch.Tensor],
        learning_rate: float,
        eps: float = 1e-8,
        apart: Collection[str] = (),
        weight_decay: float = 0.01,
        trust_min: float = 0.01,
    ) -> None:
        super().__init__(parameters, learning_rate, eps, apart)
        self._eps, self._trust_min = eps, trust_min
        self._decay = {
            parameter: 0.0 if name.endswith(_NOT_DECAYED) else weight_decay
            for name, parameter in self._parameters.items()
        }

    @torch.no_grad()
    def step(self, skip: torch.Tensor | None = None) -> None:
        """Makes one step along the gradients, unless `skip` (), by default `tripped`, is 1."""
        stays = (self.tripped if skip is None else skip) > 0
        for group in self._adam.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group["lr"], stays)

    def _move(self, parameter: torch.Tensor, rate: float, stays: torch.Tensor) -> None:
        """Makes a step of one parameter, or none where `stays` () bool is true."""
        state, gradient = self._adam.state[parameter], parameter.grad
        assert gradient is not None
        new = {
            "step": state["step"] + 1.0,
            "exp_avg": torch.lerp(gradient, state["exp_avg"], _BETAS[0]),
            "exp_avg_sq": torch.lerp(gradient.square(), state["exp_avg_sq"], _BETAS[1]),
        }
        mean, square = (
            new[moment] / -torch.expm1(new["step"] * math.log(beta))  # 1 - beta^step
            for moment, beta in zip(("exp_avg", "exp_avg_sq"), _BETAS, strict=True)
        )
        direction = mean / (square.sqrt() + self._eps) + self._decay[parameter] * parameter
        ratio = trust_ratio(parameter, direction, self._trust_min) if parameter.ndim > 1 else 1.0
        moved = parameter - rate * ratio * direction
        for old, value in ((parameter, moved), *((state[name], new[name]) for name in new)):
            # Selected on the device, so that the host need not wait for it.
            old.copy_(torch.where(stays, old, value))


def trust_ratio(weight: torch.Tensor, direction: torch.Tensor, least: float) -> torch.Tensor:
    """Returns the trust ratio () of a layer, within [`least`, 1 / `least`].

    The ratio is min(|weight|, 10) / |direction| (Shacklett et al. 2021, equation 2). It is 1 where
    either norm is 0, as in the authors' code: with the equation's minimum ratio, a layer that
    starts at zero would hardly move.
    """
    of_weight, of_direction = weight.norm(), direction.norm()
    ratio = (of_weight.clamp(max=_LARGEST_NORM) / of_direction).clamp(least, 1.0 / least)
    return torch.where((of_weight > 0) & (of_direction > 0), ratio, 1.0)
