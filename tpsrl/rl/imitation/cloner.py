"""Behaviour cloning: fits a policy to demonstrations."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import nn

from tpsrl.errors import RunError
from tpsrl.rl.envs.pictures import DEPTH, kind_of
from tpsrl.rl.imitation.dataset import CloningBatch, Demonstration, batches
from tpsrl.rl.imitation.loss import cloning_loss
from tpsrl.rl.imitation.settings import CloningSettings
from tpsrl.rl.policy.actor_critic import ActorCritic


class Cloner:
    """Fits a policy's means to the labels of episodes, whose number may grow between calls.

    Args:
        policy: the policy, whose parameters are changed in place
        settings: settings of the cloning
        switches: action dimensions of which only the sign matters
        seed: seed of the order of episodes and of the sensing noise
        scales: scales of action dimensions in the loss, see `cloning_loss`; 1 for the others
    """

    def __init__(
        self,
        policy: ActorCritic,
        settings: CloningSettings,
        switches: Sequence[int] = (),
        seed: int = 0,
        scales: Mapping[int, float] | None = None,
    ) -> None:
        self.policy, self.settings = policy, settings
        self._rays = slice(*policy.spec.rays)
        self._parameters = [p for p in policy.parameters() if p.requires_grad]
        self.device = self._parameters[0].device
        chosen = torch.zeros_like(policy.mask)
        chosen[list(switches)] = True
        self._switches = chosen
        self._scale = scale_of(policy, scales or {})
        self._adam = torch.optim.Adam(self._parameters, settings.learning_rate, fused=True)
        self._generator = torch.Generator().manual_seed(seed)
        self._left: Iterator[CloningBatch] = iter(())

    def learn(
        self,
        episodes: list[Demonstration],
        frames: int,
        done: float,
        until: float,
        tell: Callable[[int], None] = lambda gone: None,
    ) -> dict[str, float]:
        """Trains on at least `frames` frames; returns means over the batches.

        The means are "distance" and "switches" as in `cloning_loss`, and "grad_norm";
        "learning_rate" is the last one and "frames" the number of frames trained on.

        Args:
            episodes: all episodes recorded so far
            frames: number of frames to train on; the batch that reaches it is the last
            done: completed share of the whole cloning before these frames, in [0, 1]
            until: completed share after these frames
            tell: called after each batch with the number of frames trained on so far

        Raises:
            RunError: there is no frame to learn from, or the loss is not finite.
        """
        if not any(map(len, episodes)):
            raise RunError("cloning: no episode to learn from; record more demonstrations")
        totals: dict[str, torch.Tensor] = {}
        gone = count = 0
        rate = self.settings.learning_rate
        self._left = iter(())  # draws a new order, with episodes added since
        while gone < frames:
            batch = next(self._left, None)
            if batch is None:
                self._left = self._order(episodes)
                continue
            rate = self._rate(done + (until - done) * gone / frames)
            for name, value in self._step(batch, rate).items():
                totals[name] = totals.get(name, torch.zeros((), device=self.device)) + value
            gone += len(batch.label)
            count += 1
            tell(gone)
        means = {name: float(total) / max(count, 1) for name, total in totals.items()}
        if not all(map(math.isfinite, means.values())):
            raise RunError("cloning: the loss is not finite; is learning_rate too high?")
        return {**means, "learning_rate": rate, "frames": float(gone)}

    def _order(self, episodes: list[Demonstration]) -> Iterator[CloningBatch]:
        size, memory = self.settings.batch_frames, self.policy.memory_size
        return batches(episodes, size, memory, self._generator, self.device)

    def _noisy(self, batch: CloningBatch) -> CloningBatch:
        """Scales depth images and laser rays of a batch by random factors.

        The look of a room tells where in it the robot is, and with few rooms to learn from, the
        policy would memorise that. The noise makes it rely on the arm's state and the known target
        where these suffice.
        """
        level = self.settings.sensing_noise
        if not level:
            return batch
        shown = dict(batch.observation)
        for name in [name for name in shown if kind_of(name) == DEPTH]:
            depth = shown[name]
            factor = torch.randn(len(depth), 1, 1, generator=self._generator)
            shown[name] = (depth * (1.0 + level * factor.to(depth.device))).clamp(0.0, 1.0)
        state = shown["state"].clone()
        rays = state[:, self._rays]
        factor = torch.randn(rays.shape, generator=self._generator).to(rays.device)
        state[:, self._rays] = rays * (1.0 + level * factor)
        return dataclasses.replace(batch, observation={**shown, "state": state})

    def _step(self, batch: CloningBatch, rate: float) -> dict[str, torch.Tensor]:
        batch = self._noisy(batch)
        loss, parts = cloning_loss(
            self.policy, batch, self._switches, self.settings.switch_weight, self._scale
        )
        self._adam.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self._parameters, self.settings.max_grad_norm)
        for group in self._adam.param_groups:
            group["lr"] = rate
        self._adam.step()
        for towers in self.policy.towers():
            sums = towers[0].sums(batch.observation).tolist()
            for tower in towers:
                tower.norm.take(sums)
        return {**parts, "grad_norm": norm.detach()}

    def _rate(self, progress: float) -> float:
        first, last = self.settings.learning_rate, self.settings.final_rate
        return last + (first - last) * 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))


def scale_of(policy: ActorCritic, scales: Mapping[int, float]) -> torch.Tensor:
    """Returns the scales of all dimensions of a policy's action (A,)."""
    scale = torch.ones(policy.mask.shape, device=policy.mask.device)
    for part, value in scales.items():
        scale[part] = value
    return scale
