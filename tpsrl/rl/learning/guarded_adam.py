"""Adam that skips steps from the first loss or gradient that is not finite."""

from collections.abc import Collection, Mapping

import torch

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


class GuardedAdam:
    """Adam (Kingma and Ba 2015) with a guard: makes no step after a mini-batch that is not finite.

    `tripped` () float is 1 from the first `watch` of a value that is not finite until `reset`.
    While it is 1, parameters and moments stay exactly as they were, without synchronising with the
    device. Parameters without a gradient also stay unchanged.

    Args:
        parameters: parameters by name, all on one device; changed in place
        learning_rate: initial learning rate; `set_rates` changes it
        eps: Adam's epsilon
        apart: names of parameters that may have a separate learning rate
    """

    def __init__(
        self,
        parameters: Mapping[str, torch.Tensor],
        learning_rate: float,
        eps: float = 1e-8,
        apart: Collection[str] = (),
    ) -> None:
        self._parameters = dict(parameters)
        tensors = list(self._parameters.values())
        groups = [
            {"params": [p for name, p in self._parameters.items() if (name in apart) is own]}
            for own in (False, True)
        ]
        self._adam = torch.optim.Adam(groups, lr=learning_rate, eps=eps, fused=True)
        for parameter in tensors:
            # Created here, so that moments can be saved and loaded before the first step.
            self._adam.state[parameter] = {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        self.tripped = torch.zeros((), device=tensors[0].device)

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next steps, for parameters that are not `apart`."""
        return float(self._adam.param_groups[0]["lr"])

    def set_rates(self, rate: float, apart: float | None = None) -> None:
        """Sets the learning rate of the next steps; that of parameters `apart` if it differs."""
        for group, own in zip(self._adam.param_groups, (None, apart), strict=True):
            group["lr"] = rate if own is None else own

    def reset(self) -> None:
        """Resets the guard, so that steps are made again."""
        self.tripped.zero_()

    def watch(self, *values: torch.Tensor) -> None:
        """Trips the guard if one of the values () is not finite."""
        finite = torch.isfinite(values[0].detach())
        for value in values[1:]:
            finite = finite & torch.isfinite(value.detach())
        torch.maximum(self.tripped, (~finite).float(), out=self.tripped)

    def zero_grad(self) -> None:
        """Clears the gradients."""
        self._adam.zero_grad(set_to_none=True)

    def step(self, skip: torch.Tensor | None = None) -> None:
        """Makes one step along the gradients, unless `skip` (), by default `tripped`, is 1."""
        # The fused optimizer changes nothing if this is 1.
        self._adam.found_inf = self.tripped if skip is None else skip  # type: ignore[attr-defined]
        self._adam.step()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Returns copies of the moments, named MOMENT.NAME, on the CPU."""
        # Contiguous tensors with their own storage, as the file format requires.
        return {
            f"{moment}.{name}": self._adam.state[parameter][moment].cpu().clone()
            for name, parameter in self._parameters.items()
            for moment in _MOMENTS
        }

    def load_state_dict(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Restores the moments of `state_dict`, which have the same shapes."""
        for name, parameter in self._parameters.items():
            for moment in _MOMENTS:
                self._adam.state[parameter][moment].copy_(tensors[f"{moment}.{name}"])
