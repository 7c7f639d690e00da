"""Random changes of colour pictures during training: jitter for each episode, noise for each step.

Policies that were trained on one set of colours and one light do not act in others; see Tobin et
al., "Domain randomization for transferring deep neural networks from simulation to the real world"
(IROS 2017).
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tpsrl.errors import UserError
from tpsrl.rl.envs.pictures import COLOUR, kind_of
from tpsrl.rl.envs.streams import Stream, generator
from tpsrl.rl.envs.vec_env import ANEW, Json, Observation, StepBatch, VecEnv, VecEnvFactory
from tpsrl.rl.envs.wrapper import WrappedVecEnv

_GREY = 128.0  # contrast is changed around this value
_RNG, _GAIN, _OFFSET = "colours", "colours/gain", "colours/offset"


@dataclasses.dataclass(frozen=True, slots=True)
class ColourChanges:
    """Strength of the changes; 0 turns a change off.

    Attributes:
        jitter: largest relative change of brightness, of contrast and of each colour channel,
            drawn uniformly for each episode
        noise: standard deviation of Gaussian noise of each pixel and channel in each step, as a
            share of the largest value
    """

    jitter: float = 0.0
    noise: float = 0.0

    def __bool__(self) -> bool:
        """Whether there is any change."""
        return self.jitter > 0.0 or self.noise > 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class ColouredVecEnvFactory:
    """Makes environments with changed colours from the environments of another factory."""

    factory: VecEnvFactory
    changes: ColourChanges
    seed: int

    def __call__(self, env_ids: Sequence[int]) -> "ColouredVecEnv":
        """See `tpsrl.rl.envs.vec_env.VecEnvFactory`."""
        return ColouredVecEnv(self.factory(env_ids), self.changes, self.seed, env_ids)


class ColouredVecEnv(WrappedVecEnv):
    """Environments whose colour pictures are changed at random.

    An environment draws from a generator of its own, so its pictures do not depend on the others.
    All cameras of an environment have the same jitter.

    Args:
        vec_env: the wrapped environments
        changes: strength of the changes
        seed: seed of the training
        numbers: numbers of the environments in the whole training
    """

    prefix = "coloured/"

    def __init__(
        self, vec_env: VecEnv, changes: ColourChanges, seed: int, numbers: Sequence[int]
    ) -> None:
        super().__init__(vec_env)
        self._changes, self._seed, self._numbers = changes, seed, list(numbers)
        self._pictures = [name for name in self.spec.observations if kind_of(name) == COLOUR]
        self._rngs = [generator(Stream.COLOURS, seed, number) for number in numbers]
        # A channel of a picture becomes gain * value + offset.
        self._gain = np.ones((self.num_envs, 3), np.float32)
        self._offset = np.zeros((self.num_envs, 3), np.float32)

    def reset(self, env_ids: Sequence[int]) -> Observation:
        """See `tpsrl.rl.envs.vec_env.VecEnv.reset`."""
        first = self.vec_env.reset(env_ids)
        for env in env_ids:
            self._draw(env)
        return self._show(env_ids, first)

    def step(self, env_ids: Sequence[int], actions: np.ndarray) -> StepBatch:
        """See `tpsrl.rl.envs.vec_env.VecEnv.step`."""
        done = self.vec_env.step(env_ids, actions)
        if done.final is not None:
            cut = [env_ids[row] for row in np.flatnonzero(done.truncated).tolist()]
            done.final = self._changed(cut, done.final)
        for row in np.flatnonzero(done.terminated | done.truncated).tolist():
            self._draw(env_ids[row])
        done.observation = self._show(env_ids, done.observation)
        return done

    def reseed(self, restarts: int) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.reseed`."""
        super().reseed(restarts)
        self._rngs = [
            generator(Stream.COLOURS, self._seed, number, restarts) for number in self._numbers
        ]

    def snapshot(self, env_id: int) -> tuple[dict[str, np.ndarray], Json]:
        """See `tpsrl.rl.envs.vec_env.VecEnv.snapshot`."""
        arrays, note = super().snapshot(env_id)
        jitter = {_GAIN: self._gain[env_id].copy(), _OFFSET: self._offset[env_id].copy()}
        return arrays | jitter, note | {_RNG: self._rngs[env_id].bit_generator.state}

    def restore(self, env_id: int, arrays: dict[str, np.ndarray], note: Json) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.restore`."""
        own = {_GAIN: self._gain, _OFFSET: self._offset}
        inner = {name: values for name, values in arrays.items() if name not in own}
        super().restore(env_id, inner, {key: note[key] for key in note if key != _RNG})
        try:
            self._rngs[env_id].bit_generator.state = note[_RNG]
            for name, values in own.items():
                if not np.isfinite(arrays[name]).all():
                    raise ValueError(f"{name} is not finite")
                values[env_id] = arrays[name]
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"snapshot: not a snapshot of an environment with colours ({error})"
            ) from None
        if note.get(ANEW):
            self._draw(env_id)
            self._show([env_id], self.vec_env.observe([env_id]))

    def _draw(self, env_id: int) -> None:
        """Draws the jitter of an episode."""
        if not self._changes.jitter:
            return
        most = self._changes.jitter
        drawn = self._rngs[env_id].uniform(1.0 - most, 1.0 + most, 5)
        brightness, contrast, channels = drawn[0], drawn[1], drawn[2:]
        self._gain[env_id] = contrast * channels
        self._offset[env_id] = _GREY * (brightness - contrast) * channels

    def _show(self, env_ids: Sequence[int], seen: Observation) -> Observation:
        changed = self._changed(env_ids, seen)
        for name, values in changed.items():
            self.shown[name][np.asarray(env_ids)] = values
        return changed

    def _changed(self, env_ids: Sequence[int], seen: Observation) -> Observation:
        """Returns observations (n, ...) with changed colours; those given stay as they are."""
        changed = dict(seen)
        for name in self._pictures:
            changed[name] = np.stack(
                [self._picture(env, seen[name][row]) for row, env in enumerate(env_ids)]
            )
        return changed

    def _picture(self, env_id: int, picture: np.ndarray) -> np.ndarray:
        """Returns a picture (height, width, 3) uint8 with changed colours."""
        values = self._gain[env_id] * picture + self._offset[env_id]
        if self._changes.noise:
            noise = self._rngs[env_id].standard_normal(picture.shape, dtype=np.float32)
            values += np.float32(255.0 * self._changes.noise) * noise
        return np.rint(values).clip(0.0, 255.0).astype(np.uint8)
