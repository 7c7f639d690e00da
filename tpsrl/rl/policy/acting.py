"""What collectors know of a policy: it acts, and can be copied with its weights."""

from collections.abc import Mapping
from typing import Any, Protocol

import torch

from tpsrl.rl.policy.actor_critic import PolicyStep, TensorObservation


class ActingPolicy(Protocol):
    """See `tpsrl.rl.policy.actor_critic.ActorCritic`."""

    @property
    def mask(self) -> torch.Tensor:
        """The parts of an action that count, (A,) bool."""
        ...

    def act(
        self,
        observation: TensorObservation,
        previous_action: torch.Tensor,
        memory: torch.Tensor,
        is_first: torch.Tensor,
    ) -> PolicyStep:
        """One step of n environments."""
        ...

    def log_prob(
        self,
        mean: torch.Tensor,
        std: torch.Tensor,
        action: torch.Tensor,
        noise: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Logarithm of the probability (n,) of actions (n, A)."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Weights by name."""
        ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Takes weights over."""
        ...
