"""Adam that mini-batches which are not finite leave as it was."""

from collections.abc import Collection, Mapping

import torch

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


class GuardedAdam:
    """Adam (Kingma and Ba 2015) with a guard: from the first bad mini-batch on no step is made.

    `tripped` () float is 1 from the first `watch` of something that is not finite until `reset`.
    Parameters and moments are then left exactly as they were, without waiting for the device. So
    are those of a parameter that has no gradient.

    Args:
        parameters: by name, all on one device; they are changed in place
        learning_rate: of the next steps; `set_rates` changes it
        eps: Adam's epsilon
        apart: names of those that may have a rate of their own
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
            # Made here, so that there is something to save and load before the first step.
            self._adam.state[parameter] = {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        self.tripped = torch.zeros((), device=tensors[0].device)

    @property
    def learning_rate(self) -> float:
        """Of the next steps, of the parameters that are not apart."""
        return float(self._adam.param_groups[0]["lr"])

    def set_rates(self, rate: float, apart: float | None = None) -> None:
        """Of the next steps; those `apart` have the same one if it is None."""
        for group, own in zip(self._adam.param_groups, (None, apart), strict=True):
            group["lr"] = rate if own is None else own

    def reset(self) -> None:
        """Steps are made again."""
        self.tripped.zero_()

    def watch(self, *values: torch.Tensor) -> None:
        """Trips the guard if one of these () is not finite."""
        finite = torch.isfinite(values[0].detach())
        for value in values[1:]:
            finite = finite & torch.isfinite(value.detach())
        torch.maximum(self.tripped, (~finite).float(), out=self.tripped)

    def zero_grad(self) -> None:
        """Forgets the gradients."""
        self._adam.zero_grad(set_to_none=True)

    def step(self, skip: torch.Tensor | None = None) -> None:
        """One step along the gradients; none where `skip` () float, or the own guard, is 1."""
        # The fused optimizer leaves everything as it was where this is 1.
        self._adam.found_inf = self.tripped if skip is None else skip  # type: ignore[attr-defined]
        self._adam.step()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Copies of the moments, under MOMENT.NAME, on the CPU."""
        # Contiguous and of their own storage, as files of tensors ask for.
        return {
            f"{moment}.{name}": self._adam.state[parameter][moment].cpu().clone()
            for name, parameter in self._parameters.items()
            for moment in _MOMENTS
        }

    def load_state_dict(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Goes on from the moments of `state_dict`, which are of the same shapes."""
        for name, parameter in self._parameters.items():
            for moment in _MOMENTS:
                self._adam.state[parameter][moment].copy_(tensors[f"{moment}.{name}"])
