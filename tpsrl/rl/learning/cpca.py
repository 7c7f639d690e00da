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
_STARTS = 6  # start rows per stretch
_DISTANCES = 2  # predictions per start row
_NEGATIVES = 20  # negative images per prediction
CHANCE = 2.0 * math.log(2.0)  # loss of a uniform guess


@dataclasses.dataclass(frozen=True, slots=True)
class Predictions:
    """Indices of p predictions from m start rows; all int64 on the CPU.

    Attributes:
        starts: (m,) rows from which predictions begin
        start: (p,) index into `starts`
        distance: (p,) steps from the start row to the predicted image
        target: (p,) row of the true image
        negative: (p, negatives) rows of other images
    """

    starts: torch.Tensor
    start: torch.Tensor
    distance: torch.Tensor
    target: torch.Tensor
    negative: torch.Tensor


class CPCA(nn.Module):
    """Contrastive prediction of future images from features and the actions taken.

    An LSTM starts from the features of a row (as output and as cell) and receives the actions taken
    from that row on, but no images. From its output, a small network classifies whether given image
    features belong to the row that many steps later or to a row drawn from the whole mini-batch.
    The loss is the mean cross entropy of the true images plus that of the negative ones. Without a
    camera, the observation "state" takes the place of the image features. Features of the previous
    action are not predicted, since that action is known.

    Predictions end where the stretch of an episode ends. To reduce their correlation, only a few
    start rows of a stretch and a few distances from each are drawn at random.

    Args:
        sizes: sizes of the policy's features
        horizon: maximum number of steps ahead
        starts: maximum number of start rows per stretch
        distances: maximum number of predictions per start row
        negatives: negative images per prediction

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
        """Returns the loss () over the predictions that `choose` draws.

        Without predictions the loss is 0 with gradients of 0, so that all ranks have gradients for
        the same parameters.
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
        """Draws the predictions of a batch: at most `starts` x `distances` images per stretch."""
        left, count = batch.left(), len(batch.time)
        # Sorts by stretch; within a stretch at random, with rows that have no later row at the end.
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
        """Returns the logits (p, 1 + negatives) of each prediction's images, the true one first."""
        device = batch.features.device
        farthest = int(chosen.distance.max())
        # Actions after the end of a stretch are arbitrary: no prediction reaches that far.
        rows, _ = batch.ahead(chosen.starts.expand(farthest, -1), torch.arange(farthest)[:, None])
        actions = batch.action[rows.to(device)]
        begin = batch.features[chosen.starts.to(device)][None]
        outputs, _ = self.future(actions, (begin, begin))
        futures = outputs[(chosen.distance - 1).to(device), chosen.start.to(device)]
        rows = torch.cat((chosen.target[:, None], chosen.negative), dim=1).to(device)
        joined = self.of_future(futures)[:, None] + self.of_image(images)[rows]
        found: torch.Tensor = self.judge(joined).squeeze(2)
        return found
