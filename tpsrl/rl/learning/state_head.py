"""Auxiliary loss `state`: predicts the true state from the features."""

import torch
from torch import nn
from torch.nn import functional

from tpsrl.errors import UserError
from tpsrl.rl.learning.feature_batch import FeatureBatch, FeatureSizes
from tpsrl.rl.policy.actor_critic import CRITIC

_INITIAL = 0.1  # scale of the initial weights


class StateHead(nn.Module):
    """Predicts the true state from a student's features by a linear layer.

    Raises:
        UserError: the observations do not include the true state.
    """

    coefficient = 0.3

    def __init__(self, sizes: FeatureSizes) -> None:
        super().__init__()
        if CRITIC not in sizes.observations:
            raise UserError("auxiliary: no true state is available; set policy.critic=true")
        self.linear = nn.Linear(sizes.features, sizes.observations[CRITIC][0])
        nn.init.orthogonal_(self.linear.weight, _INITIAL)
        nn.init.zeros_(self.linear.bias)

    def forward(self, batch: FeatureBatch) -> torch.Tensor:
        """Returns the smooth L1 distance () between the predicted and the true state."""
        found = self.linear(batch.features)
        return functional.smooth_l1_loss(found, batch.observation[CRITIC], beta=0.1)
