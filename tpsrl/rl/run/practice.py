"""Sampling of start states that favours those which the policy masters about half of the time.

A start state that always succeeds, or never does, teaches nothing. Groups of start states are drawn
in proportion to p (1 - p) plus a floor, where p is the recent success rate; with the floor, every
group continues to be drawn (OmniReset, arXiv 2603.15789; success-guided resets, arXiv 2610.12465).
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import EpisodeStats
from tpsrl.rl.run.checkpoint import Checkpoint

PART = "practice"  # part of a checkpoint
_PRIOR = 0.5  # success rate of a group that was never tried
_NEWEST = 0.1  # minimum weight of the newest episode in a group's rate


class Practice:
    """Success rates of groups of start states, and the resulting weights.

    Args:
        parts: names of the parts of start states, and the number of groups in each
        floor: weight of a group that always or never succeeds; p = 0.5 adds 0.25
    """

    def __init__(self, parts: Sequence[tuple[str, int]], floor: float) -> None:
        self._parts, groups = parts, sum(count for _, count in parts)
        self._rate = np.full(groups, _PRIOR)
        self._tries = np.zeros(groups, dtype=np.int64)
        self._floor = floor

    def add(self, episodes: Iterable[EpisodeStats]) -> None:
        """Adds episodes, in the order in which they ended."""
        for episode in episodes:
            group = episode.start_group
            self._tries[group] += 1
            # The prior counts as one episode; the weight of old episodes decays.
            newest = max(1.0 / (1.0 + self._tries[group]), _NEWEST)
            self._rate[group] += newest * (float(episode.success) - self._rate[group])

    @property
    def weights(self) -> np.ndarray:
        """Weight of each group, (groups,)."""
        return self._rate * (1.0 - self._rate) + self._floor

    @property
    def mastered(self) -> float:
        """Mean success rate over groups, regardless of how often each is drawn."""
        return float(self._rate.mean())

    def by_part(self) -> dict[str, float]:
        """Returns the mean success rate of the groups tried so far, for each part."""
        found, end = {}, 0
        for name, count in self._parts:
            begin, end = end, end + count
            tried = self._tries[begin:end] > 0
            if tried.any():
                found[name] = float(self._rate[begin:end][tried].mean())
        return found

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Returns the tensors of the part `PART` of a checkpoint, for `restore`."""
        return {"rate": torch.from_numpy(self._rate), "tries": torch.from_numpy(self._tries)}

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continues from a checkpoint.

        Raises:
            UserError: the checkpoint is of other start states, or damaged.
        """
        found = checkpoint.part(PART)
        for name, own in (("rate", self._rate), ("tries", self._tries)):
            values = found[name].numpy() if name in found else None
            if values is None or values.shape != own.shape or values.dtype != own.dtype:
                raise UserError(f"{PART}: {name} in the checkpoint does not fit these start states")
            if not ((values >= 0) & np.isfinite(values)).all():
                raise UserError(f"{PART}: {name} in the checkpoint is damaged")
            own[:] = values
