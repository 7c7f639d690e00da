"""The mean of a policy's weights over the last of its training, to act by.

What a policy gradient adds to the weights is right on average and wrong by chance in each step. A
step that is small enough to hurt little is slow; a mean over many steps has less of the chance and
as much of the rest (Polyak and Juditsky, SIAM J. Control Optim. 1992; of policies, Nikishin et al.,
UAI workshop 2018).
"""

import copy
import math
from typing import Any

import torch

from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.run import checkpoint as checkpoints
from tpsrl.rl.run.checkpoint import Checkpoint
from tpsrl.runtime.records import Count

PART = "average"  # of a checkpoint


class WeightAverage:
    """Parameters averaged over about `window` steps of experience, buffers as they are last.

    It is the plain mean while there are fewer steps, and from then on an exponential one, in which
    a step counts by a factor of e less for each `window` steps that followed it.
    """

    def __init__(self, policy: ActorCritic, window: int) -> None:
        self.policy = copy.deepcopy(policy).requires_grad_(False)
        self._window, self._steps = window, 0

    def add(self, policy: ActorCritic, steps: int) -> None:
        """Weights that `steps` steps of experience have led to."""
        self._steps += steps
        share = max(steps / self._steps, -math.expm1(-steps / self._window))
        with torch.no_grad():
            for mean, new in zip(self.policy.parameters(), policy.parameters(), strict=True):
                mean.lerp_(new, share)
            for kept, last in zip(self.policy.buffers(), policy.buffers(), strict=True):
                kept.copy_(last)

    def state_dict(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Tensors and a note from which `restore` makes the same mean again."""
        return dict(self.policy.state_dict()), {"steps": self._steps}

    def restore(self, checkpoint: Checkpoint) -> None:
        """Goes on from a checkpoint; one without an average starts it anew, from its weights.

        Raises:
            UserError: it is of another network.
        """
        weights = checkpoint.optional(PART)
        if not weights:
            checkpoints.load_weights(self.policy, checkpoint)
            return
        checkpoints.put_weights(self.policy, weights, checkpoint.path, checkpoint.field)
        self._steps = checkpoint.get(PART, dict[str, Count]).get("steps", 0)
