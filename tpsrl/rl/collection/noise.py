"""Exploration noise of actions, drawn for each environment separately.

The noise of an environment's k-th action depends only on the seed, the environment's number and k:
neither on the other environments of its batch nor on the collector.

Independent noise at 30 Hz averages out: it hardly moves a robot away from the path of its mean
actions. Noise that is correlated from step to step explores whole manoeuvres with the same standard
deviation (Eberhard et al., Pink Noise Is All You Need, ICLR 2023; Hollenstein et al., Colored Noise
in PPO, AAAI 2024). As in these papers, the probability of an action remains that of the step's own
Gaussian.
"""

import math
from collections.abc import Mapping

import numpy as np

from tpsrl.errors import UserError
from tpsrl.rl.envs.streams import Stream, generator
from tpsrl.rl.envs.vec_env import Json

_BLOCK = 64  # draws of an environment that are generated at once


class Noise:
    """Standard normal noise for actions of length A in n environments, numbered from `first`.

    Args:
        num_envs: n
        size: A
        seed: common to all environments
        first: number of the first environment
        correlation: correlation of an environment's successive draws, in [0, 1): a first-order
            autoregressive process, whose marginal distribution stays standard normal
    """

    def __init__(
        self, num_envs: int, size: int, seed: int = 0, first: int = 0, correlation: float = 0.0
    ) -> None:
        numbers = range(first, first + num_envs)
        self._rngs = [generator(Stream.NOISE, seed, env) for env in numbers]
        self._block = np.zeros((num_envs, _BLOCK, size), np.float32)
        self._at = np.full(num_envs, _BLOCK)
        self._correlation = np.float32(correlation)
        self._fresh = np.float32(math.sqrt(1.0 - correlation**2))
        # The last draws; NaN before the first.
        self._last = np.full((num_envs, size), np.nan, np.float32) if correlation else None

    def draw(self, envs: np.ndarray) -> np.ndarray:
        """Returns the next noise (m, A) float32 of environments (m,), each listed once."""
        for env in envs[self._at[envs] == _BLOCK].tolist():
            self._rngs[env].standard_normal(out=self._block[env], dtype=np.float32)
            self._at[env] = 0
        drawn: np.ndarray = self._block[envs, self._at[envs]]
        self._at[envs] += 1
        return drawn if self._last is None else self._correlate(self._last, envs, drawn)

    def _correlate(self, last: np.ndarray, envs: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        """Returns the next correlated noise (m, A), given independent noise (m, A)."""
        before = last[envs]
        now = self._correlation * before + self._fresh * drawn
        now = np.where(np.isnan(before), drawn, now)
        last[envs] = now
        return now

    def snapshot(self) -> tuple[dict[str, np.ndarray], Json]:
        """Returns the state that the next draws depend on: arrays, JSON types."""
        states = [rng.bit_generator.state for rng in self._rngs]
        arrays = {"block": self._block.copy(), "at": self._at.copy()}
        if self._last is not None:
            arrays["last"] = self._last.copy()
        return arrays, {"states": states}

    def restore(self, arrays: Mapping[str, np.ndarray], note: Json) -> None:
        """Continues from a snapshot.

        Raises:
            UserError: the snapshot is of other environments, or damaged.
        """
        try:
            if arrays["block"].shape != self._block.shape:
                raise ValueError(f"shape {arrays['block'].shape}, here {self._block.shape}")
            if not ((arrays["at"] >= 0) & (arrays["at"] <= self._block.shape[1])).all():
                raise ValueError("a position outside of its block")
            self._block[:], self._at[:] = arrays["block"], arrays["at"]
            if self._last is not None:
                if arrays["last"].shape != self._last.shape or np.isinf(arrays["last"]).any():
                    raise ValueError("last draws of another shape, or infinite")
                self._last[:] = arrays["last"]
            for rng, state in zip(self._rngs, note["states"], strict=True):
                rng.bit_generator.state = state
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise UserError(f"snapshot: the noise does not fit ({error!r})") from None
