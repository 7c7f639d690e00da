"""Interface of environments for learner and collectors."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

Observation = dict[str, np.ndarray]
MAP = "map"  # observation: map of what was seen around the base, (2, height, width)
Json = dict[str, Any]

# Entry of a snapshot's note: the state could not be saved, so restoring begins an episode.
ANEW = "anew"


@dataclasses.dataclass(frozen=True, slots=True)
class EnvSpec:
    """Shapes of an environment's observations, without batch axis, and properties of its actions.

    Observation "state" (k,) is always there. Observations are float32, except for pictures other
    than depth, which are uint8 (`tpsrl.rl.envs.pictures`); depth is (height, width) in [0, 1]. Only
    the parts of an action under `mask` (A,) have an effect. A new policy explores around the action
    `initial_mean` (A,), empty for zero, with standard deviation `initial_std` (A,), where 0 means
    the policy's own `PolicySettings.initial_std`. Both are per part because of parts such as the
    stop: if it ended the episode half of the time, there would be nothing to learn from. `rays` are
    the first column of "state" that holds distances in metres, and the one behind the last; `far`
    is the distance in metres at which depth is 1. `start_parts` are the parts from which start
    states are drawn, by name, with the number of groups in each that can be weighted
    (`VecEnv.weigh`). Of the parts `switches` of an action only the sign has an effect. `classes` is
    the number of classes in class pictures. `gaze` are the first column of "state" that holds the
    goal's place in the head's picture (right and down in [-1, 1], distance in metres), and the one
    behind the last. `grip_rule` are a column of "state" that holds a value for a part of an action,
    1 or -1, and that part; (0, 0) for none.
    """

    observations: dict[str, tuple[int, ...]]
    mask: tuple[bool, ...]
    initial_mean: tuple[float, ...] = ()
    initial_std: tuple[float, ...] = ()
    rays: tuple[int, int] = (0, 0)
    far: float = 1.0
    start_parts: tuple[tuple[str, int], ...] = ()
    switches: tuple[int, ...] = ()
    classes: int = 0
    gaze: tuple[int, int] = (0, 0)
    grip_rule: tuple[int, int] = (0, 0)

    @property
    def start_groups(self) -> int:
        """Number of groups of start states over all parts; 0 if starts cannot be weighted."""
        return sum(count for _, count in self.start_parts)

    @property
    def action_size(self) -> int:
        """Length A of an action, masked parts included."""
        return len(self.mask)


@dataclasses.dataclass(frozen=True, slots=True)
class EpisodeStats:
    """Statistics of a finished episode.

    `env` is the environment's number among all, `terms` are the sums of the reward terms, and
    `ended_by` is "success", "timeout" or the name of a failure. `start_index` is the number of the
    episode's start state, `start_group` the group of that start state. `metrics` are those of the
    task by name, such as SPL, if it has any.
    """

    env: int
    start_index: int
    steps: int
    reward: float
    success: bool
    ended_by: str
    terms: dict[str, float] = dataclasses.field(default_factory=dict)
    start_group: int = 0
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(slots=True)
class StepBatch:
    """Results of a step of m environments.

    `observation` is the current observation of each environment: if its episode is over
    (`terminated` or `truncated`), the first one of the next episode. `final` has, for the rows
    under `truncated` and in their order, the last observation of the episode, from which the rest
    of the return is estimated.
    """

    observation: Observation
    reward: np.ndarray  # (m,) float32
    terminated: np.ndarray  # (m,) bool
    truncated: np.ndarray  # (m,) bool
    final: Observation | None = None  # None where nothing was truncated
    episodes: list[EpisodeStats] = dataclasses.field(default_factory=list)  # in the order of rows


class VecEnv(Protocol):
    """Environments of one process, any subset of which is stepped in one call.

    An environment is identified by its number in this process. Each has its own random generator
    for its episodes, so they do not depend on the other environments.
    """

    num_envs: int
    spec: EnvSpec

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of all `reset` and `step` calls so far spent on "rendering" and on "resets".

        The rest counts as simulation.
        """
        ...

    def reset(self, env_ids: Sequence[int]) -> Observation:
        """Begins a new episode in each environment; returns the first observations."""
        ...

    def step(self, env_ids: Sequence[int], actions: np.ndarray) -> StepBatch:
        """Steps environments under actions (m, A); a finished episode is followed by the next."""
        ...

    def observe(self, env_ids: Sequence[int]) -> Observation:
        """Returns the current observations of environments, the same as were returned last."""
        ...

    def start_index(self, env_id: int) -> int:
        """Returns the number of the current start state, see `EpisodeStats.start_index`."""
        ...

    def reseed(self, restarts: int) -> None:
        """Reseeds the random generators; called before anything is drawn.

        The environments replace others that were lost with their process, which has been restarted
        `restarts` times, and should not run into the same failure.
        """
        ...

    def avoid(self, starts: Sequence[int]) -> None:
        """Excludes start states from all further draws."""
        ...

    def weigh(self, weights: np.ndarray) -> None:
        """Sets the weights (EnvSpec.start_groups,) by which groups of start states are drawn."""
        ...

    def snapshot(self, env_id: int) -> tuple[dict[str, np.ndarray], Json]:
        """Returns an environment's state with episode and random generator: arrays, JSON types."""
        ...

    def restore(self, env_id: int, arrays: dict[str, np.ndarray], note: Json) -> None:
        """Restores an environment exactly from a snapshot, which may be of another process.

        If the note contains `ANEW`, the environment begins an episode instead.

        Raises:
            UserError: the snapshot does not fit.
        """
        ...

    def close(self) -> None:
        """Frees the resources of the environments."""
        ...


class VecEnvFactory(Protocol):
    """Makes the environments of a worker; must be picklable to be sent to the worker's process."""

    def __call__(self, env_ids: Sequence[int]) -> VecEnv:
        """Makes the environments of these numbers among all, which seed their generators."""
        ...
