"""What learner and collectors know of environments."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

Observation = dict[str, np.ndarray]
MAP = "map"  # of observations: what was seen around the base, (2, height, width)
Json = dict[str, Any]

# Entry of a snapshot's note: the environment cannot be frozen. Restored, it begins an episode.
ANEW = "anew"


@dataclasses.dataclass(frozen=True, slots=True)
class EnvSpec:
    """The shapes of an environment's observations, without batch axis, and what an action is.

    "state" (k,) is always there; observations are float32, but for colour and classes, which are
    uint8 (`tpsrl.rl.envs.pictures`); depth is (height, width) in [0, 1]. Only the parts of an
    action under `mask` (A,) have an effect. `initial_mean` (A,) is the action around which a new
    policy begins to try, zero where it is not given, and `initial_std` (A,) how widely, 0 for the
    policy's own `PolicySettings.initial_std`: a stop that ends the episode half of the time would
    leave nothing to learn from. `rays` are the first column of "state", and the one behind the
    last, that hold distances in metres; `far` is how many metres off a 1 of depth is. `start_parts`
    are the parts that start states are drawn from, by name, and how many groups each has that can
    be weighted (`VecEnv.weigh`). Of the parts `switches` of an action only the sign has an effect.
    `classes` is how many classes pictures of these tell apart.
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

    @property
    def start_groups(self) -> int:
        """Groups of start states, of all parts; 0 where starts cannot be weighted."""
        return sum(count for _, count in self.start_parts)

    @property
    def action_size(self) -> int:
        """Length A of an action, whatever is masked."""
        return len(self.mask)


@dataclasses.dataclass(frozen=True, slots=True)
class EpisodeStats:
    """What is kept of a finished episode.

    `env` is the environment's number in the whole; `terms` are the sums of the reward's terms,
    `ended_by` is "success", "timeout" or the name of a failure, `start_index` the number of the
    start state that it was drawn from, `start_group` the group of that.
    """

    env: int
    start_index: int
    steps: int
    reward: float
    success: bool
    ended_by: str
    terms: dict[str, float] = dataclasses.field(default_factory=dict)
    start_group: int = 0


@dataclasses.dataclass(slots=True)
class StepBatch:
    """What came of a step of m environments.

    `observation` is what each environment shows now: where its episode is over (`terminated` or
    `truncated`), the first of the next. `final` has, for the rows under `truncated` and in their
    order, what was to be seen at the end, from which the rest of the return is estimated.
    """

    observation: Observation
    reward: np.ndarray  # (m,) float32
    terminated: np.ndarray  # (m,) bool
    truncated: np.ndarray  # (m,) bool
    final: Observation | None = None  # None where nothing was truncated
    episodes: list[EpisodeStats] = dataclasses.field(default_factory=list)  # in the order of rows


class VecEnv(Protocol):
    """Environments of one process, any subset of which is stepped in one call.

    An environment is named by its number in this process. It draws its episodes from a random
    generator of its own, so what it goes through does not depend on the others.
    """

    num_envs: int
    spec: EnvSpec

    @property
    def seconds(self) -> dict[str, float]:
        """What of the time in `reset` and `step` so far went into "rendering" and "resets".

        The rest counts as simulation.
        """
        ...

    def reset(self, env_ids: Sequence[int]) -> Observation:
        """Begins a new episode in each; the first observations."""
        ...

    def step(self, env_ids: Sequence[int], actions: np.ndarray) -> StepBatch:
        """One step under actions (m, A); an episode that is over is followed by the next."""
        ...

    def observe(self, env_ids: Sequence[int]) -> Observation:
        """What environments show now, the same as was shown last."""
        ...

    def start_index(self, env_id: int) -> int:
        """The number of the start state of the present episode, see `EpisodeStats.start_index`."""
        ...

    def reseed(self, restarts: int) -> None:
        """Seeds the generators anew, before anything is drawn.

        The environments take the place of others that were lost with their process, which was
        restarted so many times, and are not to run into the same.
        """
        ...

    def avoid(self, starts: Sequence[int]) -> None:
        """From now on these start states are not drawn any more."""
        ...

    def weigh(self, weights: np.ndarray) -> None:
        """From now on start states are drawn by the weights (EnvSpec.start_groups,) of groups."""
        ...

    def snapshot(self, env_id: int) -> tuple[dict[str, np.ndarray], Json]:
        """An environment with its episode and random generator, frozen: arrays, and JSON types."""
        ...

    def restore(self, env_id: int, arrays: dict[str, np.ndarray], note: Json) -> None:
        """Puts an environment exactly into a frozen state, which may be of another process.

        With a note that says `ANEW` it begins an episode instead.

        Raises:
            UserError: the snapshot does not fit.
        """
        ...

    def close(self) -> None:
        """Frees what the environments hold."""
        ...


class VecEnvFactory(Protocol):
    """Makes the environments of a worker; is sent to the worker's process, so it can be pickled."""

    def __call__(self, env_ids: Sequence[int]) -> VecEnv:
        """Environments for these numbers of the whole, which seed their random generators."""
        ...
