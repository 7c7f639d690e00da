"""A trained policy that acts by the observations of gymnasium environments."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from skills.policies.learned import NetworkActor, load
from tpsrl.errors import UserError
from tpsrl.rl.envs.pictures import dtype_of
from tpsrl.rl.envs.vec_env import Observation


class ObservationPolicy:
    """Acts for a skill in environments that show what it was trained on; numpy in, numpy out.

        policy = ObservationPolicy("pick", "pretrained")
        env = gymnasium.make("tpsrl/Pick-v0", **policy.keywords)
        observation, _ = env.reset(seed=0)
        policy.reset(seed=0)
        action = policy.act(observation)

    It has the memory of the network and the observation before, for one that acts with delay. What
    it does in an episode is the same for the same seed of `reset`.

    Args:
        skill: name of the skill
        path: as `skills.policies.learned.find` takes it: a training, a file, or "pretrained"
        sample: whether to draw actions; None: as the checkpoint says

    Raises:
        UserError: there is no such file, or it is not a checkpoint of this skill.
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
        """What `gymnasium.make` has to be told so that the environment shows what it looks at."""
        inputs = self.inputs
        return {
            "sensors": inputs.sensors,
            "height_map": inputs.height_map,
            **({"cameras": inputs.pictures} if inputs.cameras else {"depth": inputs.depth}),
        }

    def reset(self, seed: int = 0) -> None:
        """Episodes begin, of as many homes as the next observation has."""
        self._seed = seed
        self._actor: NetworkActor | None = None
        self._count = 0

    def act(
        self, observation: Mapping[str, np.ndarray], episode_start: np.ndarray | None = None
    ) -> np.ndarray:
        """The action (11,) float32 in [-1, 1] for an observation, (n, 11) for those of n homes.

        Args:
            observation: "state" (k,), "depth" (height, width) or (1, height, width), "map" and
                other pictures as far as the policy looks at them, each with an axis of n homes
                before these or none; other entries are left alone
            episode_start: (n,) bool, of which homes this is the first observation of an episode;
                None: of those that `reset` began

        Raises:
            UserError: an entry is missing, of another shape or not finite, or there are more or
                fewer homes than before.
        """
        seen, single = self._checked(observation)
        count = len(seen["state"])
        if self._actor is None:
            self._actor = NetworkActor(self._network, self.sample, count, self._seed)
            self._count = count
        if count != self._count:
            raise UserError(f"observation: of {count} homes, expected {self._count}; see reset()")
        if episode_start is not None:
            begun = np.asarray(episode_start)
            if begun.dtype != bool or begun.shape != (() if single else (count,)):
                raise UserError(f"episode_start: must be {count} times true or false, got {begun}")
            self._actor.begin(begun.reshape(count))
        action = self._actor.act(seen).astype(np.float32)
        return action[0] if single else action

    def _checked(self, observation: Mapping[str, np.ndarray]) -> tuple[Observation, bool]:
        """Copies (n, ...) of the entries that are looked at, and whether they are of one home."""
        if not isinstance(observation, Mapping):
            raise UserError(f"observation: must be a dictionary of arrays, got {observation!r}")
        shapes = self.inputs.shapes()
        if missing := [name for name in shapes if name not in observation]:
            raise UserError(f"observation: has no {missing[0]}; make the environment with keywords")
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
