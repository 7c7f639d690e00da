"""Which start states a policy practises: those that it masters about half of the time.

A start that always succeeds, or never does, teaches nothing. Groups of starts are drawn in
proportion to p (1 - p), where p is the success rate of late, and a floor, so that none is forgotten
(OmniReset, arXiv 2603.15789; success-guided resets, arXiv 2610.12465).
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import EpisodeStats
from tpsrl.rl.run.checkpoint import Checkpoint

PART = "practice"  # of a checkpoint
_PRIOR = 0.5  # success rate of a group that was never tried
_NEWEST = 0.1  # least weight of the newest episode in a group's rate


class Practice:
    """Success rates of groups of start states, and the weights that follow.

    Args:
        parts: that starts are drawn from, by name, and how many groups each has
        floor: weight of a group that is mastered, or hopeless; that of one in between is 0.25
    """

    def __init__(self, parts: Sequence[tuple[str, int]], floor: float) -> None:
        self._parts, groups = parts, sum(count for _, count in parts)
        self._rate = np.full(groups, _PRIOR)
        self._tries = np.zeros(groups, dtype=np.int64)
        self._floor = floor

    def add(self, episodes: Iterable[EpisodeStats]) -> None:
        """Further episodes, in the order in which they ended."""
        for episode in episodes:
            group = episode.start_group
            self._tries[group] += 1
            # The prior counts as one episode, and old ones are forgotten.
            newest = max(1.0 / (1.0 + self._tries[group]), _NEWEST)
            self._rate[group] += newest * (float(episode.success) - self._rate[group])

    @property
    def weights(self) -> np.ndarray:
        """Of each group, (groups,)."""
        return self._rate * (1.0 - self._rate) + self._floor

    @property
    def mastered(self) -> float:
        """The mean success rate of the groups, however often they are drawn."""
        return float(self._rate.mean())

    def by_part(self) -> dict[str, float]:
        """The mean success rate of the groups of each part that were tried."""
        found, end = {}, 0
        for name, count in self._parts:
            begin, end = end, end + count
            tried = self._tries[begin:end] > 0
            if tried.any():
                found[name] = float(self._rate[begin:end][tried].mean())
        return found

    def state_dict(self) -> dict[str, torch.Tensor]:
        """What `restore` takes."""
        return {"rate": torch.from_numpy(self._rate), "tries": torch.from_numpy(self._tries)}

    def restore(self, checkpoint: Checkpoint) -> None:
        """Goes on from a checkpoint.

        Raises:
            UserError: it is of other starts, or damaged.
        """
        found = checkpoint.part(PART)
        for name, own in (("rate", self._rate), ("tries", self._tries)):
            values = found[name].numpy() if name in found else None
            if values is None or values.shape != own.shape or values.dtype != own.dtype:
                raise UserError(f"{PART}: {name} in the checkpoint is not of these starts")
            if not ((values >= 0) & np.isfinite(values)).all():
                raise UserError(f"{PART}: {name} in the checkpoint is damaged")
            own[:] = values
