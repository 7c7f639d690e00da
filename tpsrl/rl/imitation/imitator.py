"""Imitation loss added to PPO's (as in DAPG, Rajeswaran et al., RSS 2018)."""

from collections.abc import Iterator, Mapping, Sequence

import torch

from tpsrl.rl.imitation.cloner import scale_of
from tpsrl.rl.imitation.dataset import CloningBatch, Demonstration, batches
from tpsrl.rl.imitation.loss import cloning_loss
from tpsrl.rl.imitation.settings import CloningSettings
from tpsrl.rl.policy.actor_critic import ActorCritic


class Imitator:
    """Cloning loss on the next batch of demonstrations, for `tpsrl.rl.learning.ppo.PPO`.

    A resumed training starts the order of episodes again from the seed.

    Args:
        episodes: demonstrations of the skill, with the policy's sensors
        switches: action dimensions of which only the sign matters
        settings: batch size and weight of the switches
        seed: seed of the order of episodes
        scales: as in `tpsrl.rl.imitation.cloner.Cloner`
    """

    def __init__(
        self,
        episodes: list[Demonstration],
        switches: Sequence[int],
        settings: CloningSettings,
        seed: int = 0,
        scales: Mapping[int, float] | None = None,
    ) -> None:
        self._scales = scales or {}
        self._episodes, self._switches, self._settings = episodes, list(switches), settings
        self._generator = torch.Generator().manual_seed(seed)
        self._left: Iterator[CloningBatch] = iter(())

    def __call__(self, policy: ActorCritic) -> torch.Tensor:
        """Returns the loss () of a policy on the next batch."""
        switches = torch.zeros_like(policy.mask)
        switches[self._switches] = True
        batch = self._next(policy)
        scale = scale_of(policy, self._scales)
        return cloning_loss(policy, batch, switches, self._settings.switch_weight, scale)[0]

    def _next(self, policy: ActorCritic) -> CloningBatch:
        batch = next(self._left, None)
        if batch is None:
            size, memory = self._settings.batch_frames, policy.memory_size
            device = policy.mask.device
            self._left = batches(self._episodes, size, memory, self._generator, device)
            batch = next(self._left)
        return batch
