"""Average of a policy's weights over the last part of its training, to act by.

A step of a policy gradient is right on average, with random errors. Steps small enough for small
errors are slow; an average over many steps has smaller errors and the same progress (Polyak and
Juditsky, SIAM J. Control Optim. 1992; of policies, Nikishin et al., UAI workshop 2018).
"""

import copy
import math
from typing import Any

import torch

from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.run import checkpoint as checkpoints
from tpsrl.rl.run.checkpoint import Checkpoint
from tpsrl.runtime.records import Count

PART = "average"  # part of a checkpoint


class WeightAverage:
    """Parameters averaged over about `window` steps of experience, and the latest buffers.

    The average is the plain mean for the first `window` steps, and exponential afterwards: the
    weight of a step falls by a factor of e for every `window` steps that follow it.
    """

    def __init__(self, policy: ActorCritic, window: int) -> None:
        self.policy = copy.deepcopy(policy).requires_grad_(False)
        self._window, self._steps = window, 0

    def add(self, policy: ActorCritic, steps: int) -> None:
        """Adds the weights after `steps` more steps of experience."""
        self._steps += steps
        share = max(steps / self._steps, -math.expm1(-steps / self._window))
        with torch.no_grad():
            for mean, new in zip(self.policy.parameters(), policy.parameters(), strict=True):
                mean.lerp_(new, share)
            for kept, last in zip(self.policy.buffers(), policy.buffers(), strict=True):
                kept.copy_(last)

    def state_dict(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Returns the tensors and the note from which `restore` recovers the average."""
        return dict(self.policy.state_dict()), {"steps": self._steps}

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continues from a checkpoint; if that has no average, starts one from its weights.

        Raises:
            UserError: the checkpoint is of another network.
        """
        weights = checkpoint.optional(PART)
        if not weights:
            checkpoints.load_weights(self.policy, checkpoint)
            return
        checkpoints.put_weights(self.policy, weights, checkpoint.path, checkpoint.field)
        self._steps = checkpoint.get(PART, dict[str, Count]).get("steps", 0)
