"""All environments of a run, any of which are stepped: what collectors drive.

Here is the interface, with sending and receiving as in EnvPool (Weng et al. 2022). A pool in the
calling process is in `tpsrl.rl.envs.serial_pool`, one of worker processes in
`tpsrl.rl.envs.worker_pool`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from tpsrl.errors import RunError, UserError
from tpsrl.rl.envs.step_buffers import episodes_from_json
from tpsrl.rl.envs.vec_env import ANEW, EnvSpec, EpisodeStats, Json, Observation, StepBatch

CAUSES = ("simulation", "rendering", "resets")  # what environments spend time on
NO_START = -1  # in the place of a start's number: none was begun yet

# Entries of a pool's snapshot about its workers: starts that are not drawn any more, how often
# workers failed in each start, and how often the one of each environment was replaced.
SUPERVISED = ("quarantine", "failures", "restarts")

PoolSnapshot = tuple[dict[str, np.ndarray], Json]  # arrays, JSON types

_LEFT = "the engine cannot restore it; its episode begins anew"
_BUFFERS = "buffers"  # prefix of the arrays of a snapshot that belong to no environment


class EnvsFailed(RunError):
    """Environments (m,) `envs` failed, or some of these did, which are of one process."""

    def __init__(self, envs: np.ndarray, message: str) -> None:
        super().__init__(message)
        self.envs = envs


@dataclasses.dataclass(frozen=True, slots=True)
class LostEnvs:
    """Environments (m,) that were lost with their process, in the middle of episodes.

    `starts` (m,) are the numbers of the start states of these episodes, or `NO_START`; `cause` is
    for people.
    """

    envs: np.ndarray
    starts: tuple[int, ...]
    cause: str


class EnvPool(Protocol):
    """Environments 0 to `num_envs` - 1, in this process or in others.

    `observation` (num_envs, ...) by name is what they show now; it is written over when they
    move, so what is to be kept has to be copied.
    """

    num_envs: int
    spec: EnvSpec
    observation: Observation

    def reset(self) -> None:
        """Begins a new episode in each.

        Raises:
            RunError: see `poll`.
        """
        ...

    def idle(self) -> np.ndarray:
        """Environments (m,) that may be sent an action; longest idle first."""
        ...

    def send(self, envs: np.ndarray, actions: np.ndarray) -> None:
        """Begins a step of environments (m,) under actions (m, A)."""
        ...

    def poll(self, at_least: int = 0, held: int = 0) -> np.ndarray:
        """Environments (m,) whose step is ready to be received, the longest ready first.

        Waits until there are `at_least` so many, unless fewer are stepping, or something else has
        to be attended to: environments were lost, one may be sent an action again after that, or
        `wake`. `held` so many are with somebody who will call `wake`.

        Raises:
            RunError: an environment failed, or its process died, and that is not tolerated;
                `EnvsFailed` where these are known.
        """
        ...

    def wake(self) -> None:
        """Ends the present wait of `poll`, or else its next one; for any thread to call."""
        ...

    def recv(self, envs: np.ndarray) -> StepBatch:
        """What came of the steps of environments (m,) that `poll` gave; they are idle then."""
        ...

    def took_s(self, envs: np.ndarray) -> np.ndarray:
        """Seconds (m,) that the last steps of environments took, resets included."""
        ...

    def ready_at(self, envs: np.ndarray) -> np.ndarray:
        """When the last steps of environments were ready (m,), by `time.monotonic`."""
        ...

    def lost(self) -> list[LostEnvs]:
        """What was lost since the last call; these environments are idle sooner or later."""
        ...

    def weigh(self, weights: np.ndarray) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.weigh`; holds from each environment's next step on."""
        ...

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by `CAUSES` so far, of the processes' mean."""
        ...

    def snapshot(self) -> PoolSnapshot:
        """All environments, frozen, with steps that were not received; waits for those under way.

        Going on from here gives the same as going on from a restored one, in whatever processes.

        Raises:
            RunError: see `poll`.
        """
        ...

    def restore(self, arrays: Mapping[str, np.ndarray], note: Json) -> None:
        """Puts every environment into its frozen state.

        Raises:
            UserError: the snapshot does not fit.
            RunError: see `poll`.
        """
        ...

    def close(self) -> None:
        """Ends processes and frees memory; safe to call twice."""
        ...


def step_all(pool: EnvPool, actions: np.ndarray) -> StepBatch:
    """One step of all environments, none of which is stepping, under actions (num_envs, A)."""
    envs = np.arange(pool.num_envs)
    pool.send(envs, actions)
    while len(pool.poll(len(envs))) < len(envs):
        pass
    return pool.recv(envs)


def by_cause(stepping: float, parts: Mapping[str, float]) -> dict[str, float]:
    """`CAUSES` of the seconds that environments took, given their `VecEnv.seconds`."""
    rest = stepping - sum(parts.values())
    return {cause: parts.get(cause, rest if cause == CAUSES[0] else 0.0) for cause in CAUSES}


def split_episodes(
    episodes: list[EpisodeStats], over: np.ndarray
) -> tuple[list[EpisodeStats], list[EpisodeStats]]:
    """Those of the environments in `over`, in their order, and the rest."""
    if not len(over):
        return [], episodes
    wanted = {int(env): place for place, env in enumerate(over)}
    found = [episode for episode in episodes if episode.env in wanted]
    rest = [episode for episode in episodes if episode.env not in wanted]
    return sorted(found, key=lambda episode: wanted[episode.env]), rest


def begun_anew(environments: Sequence[PoolSnapshot]) -> list[LostEnvs]:
    """The environments, if any, that no snapshot can bring back and that begin an episode."""
    envs = [env for env, (_, note) in enumerate(environments) if note.get(ANEW)]
    starts = tuple(int(environments[env][1].get("start", NO_START)) for env in envs)
    return [LostEnvs(np.array(envs), starts, _LEFT)] if envs else []


def named(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays under longer names."""
    return {f"{prefix}/{name}": values for name, values in arrays.items()}


def pack_snapshot(
    buffers: Mapping[str, np.ndarray], environments: list[PoolSnapshot]
) -> tuple[dict[str, np.ndarray], list[Json]]:
    """The arrays of a pool's snapshot, and the notes of its environments."""
    arrays = named(_BUFFERS, buffers)
    for env, (parts, _) in enumerate(environments):
        arrays |= named(str(env), parts)
    return arrays, [about for _, about in environments]


def unpack_snapshot(
    arrays: Mapping[str, np.ndarray], note: Json, num_envs: int
) -> tuple[dict[str, np.ndarray], list[PoolSnapshot], list[EpisodeStats]]:
    """A snapshot's step buffers, the snapshot of each environment, and episodes not yet received.

    Raises:
        UserError: it is none, or of another number of environments.
    """
    notes = note.get("environments")
    if not isinstance(notes, list):
        raise UserError("snapshot: not one of environments")
    if len(notes) != num_envs:
        raise UserError(f"snapshot: of {len(notes)} environments, here are {num_envs}")
    buffers: dict[str, np.ndarray] = {}
    parts: list[dict[str, np.ndarray]] = [{} for _ in notes]
    try:
        for key, values in arrays.items():
            where, _, name = key.partition("/")
            (buffers if where == _BUFFERS else parts[int(where)])[name] = values
    except (ValueError, IndexError) as error:
        raise UserError(f"snapshot: not one of environments ({error!r})") from None
    episodes = episodes_from_json(note.get("episodes", []))
    return buffers, list(zip(parts, notes, strict=True)), episodes
