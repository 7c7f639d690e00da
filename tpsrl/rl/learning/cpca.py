"""The auxiliary loss `cpca`: action-conditional contrastive predictive coding, CPC|A.

Guo et al. 2018, "Neural predictive belief representations", section 3; as an auxiliary loss of
reinforcement learning Guo et al. 2020, "Bootstrap latent-predictive representations for multitask
reinforcement learning". The VER paper trains ObjectNav with it (appendix D).
"""

import dataclasses
import math

import torch
from torch import nn
from torch.nn import functional

from tpsrl.errors import UserError
from tpsrl.rl.learning.feature_batch import FeatureBatch, FeatureSizes

# As in habitat-baselines 0.3.3, which VER's authors trained with.
_HORIZON = 20  # steps
_STARTS = 6  # rows of a stretch that predictions begin at
_DISTANCES = 2  # predictions of each
_NEGATIVES = 20  # images beside the true one
CHANCE = 2.0 * math.log(2.0)  # the loss of who cannot tell them apart


@dataclasses.dataclass(frozen=True, slots=True)
class Predictions:
    """What is predicted, p images from m rows; all int64 on the CPU.

    starts: (m,) rows from which predictions begin
    start: (p,) index into `starts`
    distance: (p,) steps from there to the image
    target: (p,) row of the image
    negative: (p, negatives) rows of other images
    """

    starts: torch.Tensor
    start: torch.Tensor
    distance: torch.Tensor
    target: torch.Tensor
    negative: torch.Tensor


class CPCA(nn.Module):
    """Which image will the camera see when these actions are taken?

    An LSTM begins with the features of a row (as output and as cell) and is fed the actions that
    were taken from there on, and no image. A small network tells by its output whether an image's
    features are those of the row so many steps later, or those of a row drawn from the whole
    mini-batch; the loss is the mean cross entropy of the true images plus that of the others.
    Without a camera the vector of the observation stands for the image's features. Features of the
    previous action are not among those that are predicted, since it is known.

    Predictions end where the stretch of an episode does. To make them less correlated, only a few
    rows of a stretch and a few distances from each are chosen, by chance.

    Args:
        sizes: of the policy
        horizon: largest number of steps ahead
        starts: rows of each stretch that predictions begin at, at most
        distances: predictions of each, at most
        negatives: other images for each prediction

    Raises:
        UserError: the policy has no memory.
    """

    coefficient = 0.1

    def __init__(
        self,
        sizes: FeatureSizes,
        horizon: int = _HORIZON,
        starts: int = _STARTS,
        distances: int = _DISTANCES,
        negatives: int = _NEGATIVES,
    ) -> None:
        super().__init__()
        if not sizes.has_memory:
            raise UserError("auxiliary: cpca needs a memory; set policy.lstm_layers to at least 1")
        self._horizon, self._starts = horizon, starts
        self._distances, self._negatives = distances, negatives
        width = sizes.features
        seen = sizes.observations["state"][0] if sizes.vision is None else sizes.vision
        self.future = nn.LSTM(sizes.actions, width)
        self.of_future = nn.Linear(width, width)
        self.of_image = nn.Linear(seen, width, bias=False)
        layers = [nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)]
        self.judge = nn.Sequential(*layers)
        for name, parameter in self.named_parameters():
            if "weight" in name:
                nn.init.orthogonal_(parameter)
            else:
                nn.init.zeros_(parameter)

    def forward(self, batch: FeatureBatch) -> torch.Tensor:
        """The loss () of as many predictions as `choose` finds.

        Without any it is 0, with gradients of 0, so that all ranks have the same gradients.
        """
        chosen = self.choose(batch)
        images = batch.observation["state"] if batch.vision is None else batch.vision
        if not len(chosen.target):
            own = sum(parameter.sum() for parameter in self.parameters())
            return 0.0 * (own + batch.features.sum() + images.sum())
        logits = self._logits(batch, images, chosen)
        true = functional.softplus(-logits[:, 0])
        others = functional.softplus(logits[:, 1:])
        return true.mean() + others.mean()

    def choose(self, batch: FeatureBatch) -> Predictions:
        """What is predicted of a batch: at most `starts` x `distances` images for each stretch."""
        left, count = batch.left(), len(batch.time)
        # In order of stretches, within each in random order, and last the rows with nothing ahead.
        key = torch.rand(count, generator=batch.generator, dtype=torch.float64) / 2.0
        key = torch.where(left > 0, key, 0.75)
        order = torch.argsort(batch.stretch + key)
        lengths = torch.bincount(batch.stretch)
        first = (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
        among = torch.arange(count) - first
        starts = order[(among < self._starts) & (left[order] > 0)]
        keys = torch.rand(len(starts), self._horizon, generator=batch.generator)
        keys[torch.arange(1, self._horizon + 1) > left[starts, None]] = 2.0
        lowest, index = keys.topk(min(self._distances, self._horizon), dim=1, largest=False)
        start, _ = torch.nonzero(lowest <= 1.0, as_tuple=True)
        distance = index[lowest <= 1.0] + 1
        target, _ = batch.ahead(starts[start], distance)
        shape = (len(target), self._negatives)
        negative = torch.zeros(shape, dtype=torch.int64)
        if len(target):
            negative = torch.randint(count - 1, shape, generator=batch.generator)
        negative += negative >= target[:, None]  # the true image is left out
        return Predictions(starts, start, distance, target, negative)

    def _logits(
        self, batch: FeatureBatch, images: torch.Tensor, chosen: Predictions
    ) -> torch.Tensor:
        """How likely each prediction's images (p, 1 + negatives) are, the true one first."""
        device = batch.features.device
        farthest = int(chosen.distance.max())
        # Behind the end of a stretch nothing is predicted, whatever is put there.
        rows, _ = batch.ahead(chosen.starts.expand(farthest, -1), torch.arange(farthest)[:, None])
        actions = batch.action[rows.to(device)]
        begin = batch.features[chosen.starts.to(device)][None]
        outputs, _ = self.future(actions, (begin, begin))
        futures = outputs[(chosen.distance - 1).to(device), chosen.start.to(device)]
        rows = torch.cat((chosen.target[:, None], chosen.negative), dim=1).to(device)
        joined = self.of_future(futures)[:, None] + self.of_image(images)[rows]
        found: torch.Tensor = self.judge(joined).squeeze(2)
        return found
