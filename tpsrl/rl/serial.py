"""All environments of a run, stepped together: what collectors drive, and its serial version."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from tpsrl.rl.envs import EnvSpec, HomesFactory, Json, Observation, StepBatch
from tpsrl.rl.stopwatch import Stopwatch

CAUSES = ("simulation", "rendering", "resets")  # what environments spend time on

Frozen = tuple[dict[str, np.ndarray], Json]  # a home's snapshot


class Environments(Protocol):
    """Environments 0 to `num_envs` - 1, in this process or in others.

    `observation` (num_envs, ...) by name is what they show now; it is written over when they
    move, so what is to be kept has to be copied.
    """

    num_envs: int
    spec: EnvSpec
    observation: Observation

    def reset(self) -> None:
        """Begins a new episode in each."""
        ...

    def send(self, actions: np.ndarray) -> None:
        """Starts a step of all under actions (num_envs, A)."""
        ...

    def receive(self) -> StepBatch:
        """Waits until the step is done; its `observation` is that of the environments.

        Raises:
            RunError: an environment failed, or its process died; names the cause.
        """
        ...

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by `CAUSES` so far, of the processes' mean."""
        ...

    def snapshot(self) -> list[Frozen]:
        """Every environment, frozen; see `tpsrl.rl.envs.Homes.snapshot`."""
        ...

    def restore(self, frozen: list[Frozen]) -> None:
        """Puts every environment into its frozen state.

        Raises:
            UserError: a snapshot does not fit.
        """
        ...

    def close(self) -> None:
        """Ends processes and frees memory; safe to call twice."""
        ...


def by_cause(stepping: float, parts: Mapping[str, float]) -> dict[str, float]:
    """`CAUSES` of the seconds that homes took, given what they say of `Homes.seconds`."""
    rest = stepping - sum(parts.values())
    return {cause: parts.get(cause, rest if cause == CAUSES[0] else 0.0) for cause in CAUSES}


class Serial:
    """`Environments` in the calling process, one call of the homes a step."""

    def __init__(self, factory: HomesFactory, num_envs: int) -> None:
        self._homes = factory(range(num_envs))
        self.num_envs, self.spec = num_envs, self._homes.spec
        self.observation: Observation = {}
        self._all = list(range(num_envs))
        self._actions = np.empty((0, 0))
        self._stepping = Stopwatch()

    @property
    def seconds(self) -> dict[str, float]:
        """See `Environments.seconds`."""
        return by_cause(self._stepping.seconds, self._homes.seconds)

    def reset(self) -> None:
        """See `Environments.reset`."""
        with self._stepping:
            self.observation = self._homes.reset(self._all)

    def send(self, actions: np.ndarray) -> None:
        """See `Environments.send`."""
        self._actions = actions

    def receive(self) -> StepBatch:
        """See `Environments.receive`."""
        with self._stepping:
            done = self._homes.step(self._all, self._actions)
        self.observation = done.observation
        return done

    def snapshot(self) -> list[Frozen]:
        """See `Environments.snapshot`."""
        return [self._homes.snapshot(env) for env in self._all]

    def restore(self, frozen: list[Frozen]) -> None:
        """See `Environments.restore`."""
        for env, (arrays, note) in zip(self._all, frozen, strict=True):
            self._homes.restore(env, arrays, note)
        self.observation = self._homes.observe(self._all)

    def close(self) -> None:
        """See `Environments.close`."""
        self._homes.close()
