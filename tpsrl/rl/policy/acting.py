"""Interface of a policy for collectors: acts, and loads and saves its weights."""

from collections.abc import Mapping
from typing import Any, Protocol

import torch

from tpsrl.rl.policy.actor_critic import PolicyStep, TensorObservation


class ActingPolicy(Protocol):
    """Policy that collectors act with; see `tpsrl.rl.policy.actor_critic.ActorCritic`."""

    @property
    def mask(self) -> torch.Tensor:
        """Action dimensions that have an effect, (A,) bool."""
        ...

    def act(
        self,
        observation: TensorObservation,
        previous_action: torch.Tensor,
        memory: torch.Tensor,
        is_first: torch.Tensor,
    ) -> PolicyStep:
        """Acts for one step in n environments."""
        ...

    def log_prob(
        self,
        mean: torch.Tensor,
        std: torch.Tensor,
        action: torch.Tensor,
        noise: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Returns the log probability (n,) of actions (n, A)."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Returns the weights by name."""
        ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Loads weights by name."""
        ...
