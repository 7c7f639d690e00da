"""Interface of pools: all environments of a run, any subset of which is stepped by a collector.

Sending and receiving are as in EnvPool (Weng et al. 2022). `tpsrl.rl.envs.serial_pool` is a pool in
the calling process, `tpsrl.rl.envs.worker_pool` one of worker processes.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from tpsrl.errors import RunError, UserError
from tpsrl.rl.envs.step_buffers import episodes_from_json
from tpsrl.rl.envs.vec_env import ANEW, EnvSpec, EpisodeStats, Json, Observation, StepBatch

CAUSES = ("simulation", "rendering", "resets")  # what environments spend time on
NO_START = -1  # number of the start state before the first episode

# Entries of a pool's snapshot about its workers: excluded start states, number of worker failures
# in each start state, and number of times that the worker of each environment was replaced.
SUPERVISED = ("quarantine", "failures", "restarts")

PoolSnapshot = tuple[dict[str, np.ndarray], Json]  # arrays, JSON types

_LEFT = "the engine cannot restore it; its episode restarts"
_BUFFERS = "buffers"  # prefix of the arrays of a snapshot that belong to no environment


class EnvsFailed(RunError):
    """One or several of the environments `envs` (m,), which share a process, failed."""

    def __init__(self, envs: np.ndarray, message: str) -> None:
        super().__init__(message)
        self.envs = envs


@dataclasses.dataclass(frozen=True, slots=True)
class LostEnvs:
    """Environments (m,) that were lost with their process during episodes.

    `starts` (m,) are the numbers of the start states of these episodes, or `NO_START`; `cause` is
    text for users.
    """

    envs: np.ndarray
    starts: tuple[int, ...]
    cause: str


class EnvPool(Protocol):
    """Environments 0 to `num_envs` - 1, in this process or in others.

    `observation` (num_envs, ...) by name holds the current observations. Steps overwrite it, so
    values to keep must be copied.
    """

    num_envs: int
    spec: EnvSpec
    observation: Observation

    def reset(self) -> None:
        """Begins a new episode in each environment.

        Raises:
            RunError: see `poll`.
        """
        ...

    def idle(self) -> np.ndarray:
        """Returns environments (m,) that may be sent an action, longest idle first."""
        ...

    def send(self, envs: np.ndarray, actions: np.ndarray) -> None:
        """Begins a step of environments (m,) under actions (m, A)."""
        ...

    def poll(self, at_least: int = 0, held: int = 0) -> np.ndarray:
        """Returns environments (m,) whose step is ready to be received, longest ready first.

        Waits until `at_least` environments are ready. Returns earlier if fewer are stepping, if
        environments were lost, if a replaced environment may be sent an action again, or after
        `wake`. `held` is the number of environments held by threads that will call `wake`.

        Raises:
            RunError: an environment failed or its process died, and the failure is not tolerated;
                `EnvsFailed` if the environments are known.
        """
        ...

    def wake(self) -> None:
        """Ends the current wait of `poll`, or else its next one; may be called by any thread."""
        ...

    def recv(self, envs: np.ndarray) -> StepBatch:
        """Returns the results of environments (m,) that `poll` returned, which become idle."""
        ...

    def took_s(self, envs: np.ndarray) -> np.ndarray:
        """Returns the seconds (m,) that the last steps of environments took, resets included."""
        ...

    def ready_at(self, envs: np.ndarray) -> np.ndarray:
        """Returns when the last steps of environments were ready (m,), by `time.monotonic`."""
        ...

    def lost(self) -> list[LostEnvs]:
        """Returns the environments lost since the last call; they become idle again later."""
        ...

    def weigh(self, weights: np.ndarray) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.weigh`; applies from an environment's next step on."""
        ...

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds so far by `CAUSES`, as the mean over processes."""
        ...

    def snapshot(self) -> PoolSnapshot:
        """Returns the state of all environments and of steps not received; waits for running steps.

        Continuing from here gives the same as continuing from a restored snapshot, in whatever
        processes.

        Raises:
            RunError: see `poll`.
        """
        ...

    def restore(self, arrays: Mapping[str, np.ndarray], note: Json) -> None:
        """Restores every environment from a snapshot.

        Raises:
            UserError: the snapshot does not fit.
            RunError: see `poll`.
        """
        ...

    def close(self) -> None:
        """Ends processes and frees memory; safe to call twice."""
        ...


def step_all(pool: EnvPool, actions: np.ndarray) -> StepBatch:
    """Steps all environments, none of which may be stepping, under actions (num_envs, A)."""
    envs = np.arange(pool.num_envs)
    pool.send(envs, actions)
    while len(pool.poll(len(envs))) < len(envs):
        pass
    return pool.recv(envs)


def by_cause(stepping: float, parts: Mapping[str, float]) -> dict[str, float]:
    """Splits the seconds that environments took into `CAUSES`, given their `VecEnv.seconds`."""
    rest = stepping - sum(parts.values())
    return {cause: parts.get(cause, rest if cause == CAUSES[0] else 0.0) for cause in CAUSES}


def split_episodes(
    episodes: list[EpisodeStats], over: np.ndarray
) -> tuple[list[EpisodeStats], list[EpisodeStats]]:
    """Returns the episodes of the environments in `over`, in their order, and the others."""
    if not len(over):
        return [], episodes
    wanted = {int(env): place for place, env in enumerate(over)}
    found = [episode for episode in episodes if episode.env in wanted]
    rest = [episode for episode in episodes if episode.env not in wanted]
    return sorted(found, key=lambda episode: wanted[episode.env]), rest


def begun_anew(environments: Sequence[PoolSnapshot]) -> list[LostEnvs]:
    """Returns the environments, if any, that begin an episode because they cannot be restored."""
    envs = [env for env, (_, note) in enumerate(environments) if note.get(ANEW)]
    starts = tuple(int(environments[env][1].get("start", NO_START)) for env in envs)
    return [LostEnvs(np.array(envs), starts, _LEFT)] if envs else []


def named(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Prefixes the names of arrays."""
    return {f"{prefix}/{name}": values for name, values in arrays.items()}


def pack_snapshot(
    buffers: Mapping[str, np.ndarray], environments: list[PoolSnapshot]
) -> tuple[dict[str, np.ndarray], list[Json]]:
    """Returns the arrays of a pool's snapshot, and the notes of its environments."""
    arrays = named(_BUFFERS, buffers)
    for env, (parts, _) in enumerate(environments):
        arrays |= named(str(env), parts)
    return arrays, [about for _, about in environments]


def unpack_snapshot(
    arrays: Mapping[str, np.ndarray], note: Json, num_envs: int
) -> tuple[dict[str, np.ndarray], list[PoolSnapshot], list[EpisodeStats]]:
    """Returns a snapshot's step buffers, its environments, and its episodes not yet received.

    Raises:
        UserError: it is not the snapshot of a pool, or has another number of environments.
    """
    notes = note.get("environments")
    if not isinstance(notes, list):
        raise UserError("snapshot: not a snapshot of environments")
    if len(notes) != num_envs:
        raise UserError(f"snapshot: has {len(notes)} environments, must have {num_envs}")
    buffers: dict[str, np.ndarray] = {}
    parts: list[dict[str, np.ndarray]] = [{} for _ in notes]
    try:
        for key, values in arrays.items():
            where, _, name = key.partition("/")
            (buffers if where == _BUFFERS else parts[int(where)])[name] = values
    except (ValueError, IndexError) as error:
        raise UserError(f"snapshot: not a snapshot of environments ({error!r})") from None
    episodes = episodes_from_json(note.get("episodes", []))
    return buffers, list(zip(parts, notes, strict=True)), episodes
