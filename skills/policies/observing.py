"""Trained policy for the observations of gymnasium environments."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from skills.policies.learned import NetworkActor, load
from tpsrl.errors import UserError
from tpsrl.rl.envs.pictures import dtype_of
from tpsrl.rl.envs.vec_env import Observation


class ObservationPolicy:
    """Trained policy of a skill for environments with the same observations as in training.

        policy = ObservationPolicy("pick", "pretrained")
        env = gymnasium.make("tpsrl/Pick-v0", **policy.keywords)
        observation, _ = env.reset(seed=0)
        policy.reset(seed=0)
        action = policy.act(observation)

    Observations and actions are numpy arrays. The policy keeps the memory of the network, and the
    previous observation if it acts with delay. Its actions are reproducible by the seed of `reset`.

    Args:
        skill: name of the skill
        path: folder of a training, file, or "pretrained"; see `skills.policies.learned.find`
        sample: whether to sample actions; None for the checkpoint's setting

    Raises:
        UserError: the file is missing, or is not a checkpoint of this skill.
    """

    def __init__(
        self, skill: str, path: str | os.PathLike[str], sample: bool | None = None
    ) -> None:
        self._network = load(skill, path)
        self.inputs = self._network.inputs
        self.sample = self._network.sample if sample is None else sample
        self.reset()

    @property
    def keywords(self) -> dict[str, Any]:
        """Keyword arguments of `gymnasium.make` that give the observations the policy needs."""
        inputs = self.inputs
        return {
            "sensors": inputs.sensors,
            "height_map": inputs.height_map,
            **({"cameras": inputs.pictures} if inputs.cameras else {"depth": inputs.depth}),
        }

    def reset(self, seed: int = 0) -> None:
        """Starts episodes in all homes; the next observation determines their number."""
        self._seed = seed
        self._actor: NetworkActor | None = None
        self._count = 0

    def act(
        self, observation: Mapping[str, np.ndarray], episode_start: np.ndarray | None = None
    ) -> np.ndarray:
        """Computes the action (11,) float32 in [-1, 1] for an observation, or (n, 11) for n homes.

        Args:
            observation: "state" (k,), and if the policy needs them "depth" (height, width) or
                (1, height, width), "map" and other pictures; all with a leading axis of n homes, or
                all without; other entries are ignored
            episode_start: (n,) bool, homes for which this is the first observation of an episode;
                None if no episode started since `reset`

        Raises:
            UserError: an entry is missing, has another shape or is not finite, or the number of
                homes has changed.
        """
        seen, single = self._checked(observation)
        count = len(seen["state"])
        if self._actor is None:
            self._actor = NetworkActor(self._network, self.sample, count, self._seed)
            self._count = count
        if count != self._count:
            raise UserError(
                f"observation: has {count} environments, expected {self._count}; call reset() first"
            )
        if episode_start is not None:
            begun = np.asarray(episode_start)
            if begun.dtype != bool or begun.shape != (() if single else (count,)):
                expected = "a bool" if single else f"a boolean array of shape ({count},)"
                raise UserError(f"episode_start: must be {expected}, got {begun}")
            self._actor.begin(begun.reshape(count))
        action = self._actor.act(seen).astype(np.float32)
        return action[0] if single else action

    def _checked(self, observation: Mapping[str, np.ndarray]) -> tuple[Observation, bool]:
        """Returns copies (n, ...) of the needed entries, and whether they had no axis of homes."""
        if not isinstance(observation, Mapping):
            raise UserError(f"observation: must be a dictionary of arrays, got {observation!r}")
        shapes = self.inputs.shapes()
        if missing := [name for name in shapes if name not in observation]:
            raise UserError(
                f"observation: {missing[0]} is missing; create the environment with the policy's "
                "keywords"
            )
        single = np.ndim(observation["state"]) == 1
        count = 1 if single else len(observation["state"])
        seen: Observation = {}
        for name, shape in shapes.items():
            values = np.array(observation[name], dtype=dtype_of(name))
            lead = () if single else (count,)
            allowed = [(*lead, *shape)] + ([(*lead, 1, *shape)] if name == "depth" else [])
            if values.shape not in allowed:
                raise UserError(f"observation: {name}: shape {values.shape}, expected {allowed[0]}")
            if not np.isfinite(values).all():
                raise UserError(f"observation: {name}: must be finite")
            seen[name] = values.reshape(count, *shape)
        return seen, single
