"""Buffers of step results until they are received; processes may share the arrays."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tpsrl.errors import RunError, UserError
from tpsrl.rl.envs.pictures import dtype_of
from tpsrl.rl.envs.shared import ArrayLayout
from tpsrl.rl.envs.vec_env import EnvSpec, EpisodeStats, Json, Observation, StepBatch
from tpsrl.runtime import records

# States of an environment: may be sent an action, is stepping, has a step that was not received
# yet, and currently has no process.
IDLE, STEPPING, READY, LAUNCHING = range(4)

_PLAIN = ("state", "reward", "terminated", "truncated", "ready_at")  # always in a snapshot


class NamedArrays(Protocol):
    """Arrays by name."""

    def __getitem__(self, name: str, /) -> np.ndarray:
        """Returns one array."""
        ...


class StepBuffers:
    """Arrays of n environments, one row each.

    `observation` (n, ...) by name holds the current observations. `ready_at` (n,) orders the ready
    steps in time. `took_s` (n,) is the duration of the last step, including resets and the other
    environments of the same process.
    """

    def __init__(self, spec: EnvSpec, arrays: NamedArrays) -> None:
        """Wraps `arrays` of the `layout`."""
        self.actions, self.state = arrays["actions"], arrays["state"]
        self.reward, self.took_s = arrays["reward"], arrays["took_s"]
        self.terminated, self.truncated = arrays["terminated"], arrays["truncated"]
        self.ready_at = arrays["ready_at"]
        self.observation = {name: arrays[f"observation.{name}"] for name in spec.observations}
        self.final = {name: arrays[f"final.{name}"] for name in spec.observations}

    @staticmethod
    def layout(spec: EnvSpec, num_envs: int) -> ArrayLayout:
        """Returns the shapes and types of the arrays."""
        n = num_envs
        layout: dict[str, Any] = {
            "state": ((n,), np.uint8),
            "actions": ((n, spec.action_size), np.float32),
            "reward": ((n,), np.float32),
            "terminated": ((n,), bool),
            "truncated": ((n,), bool),
            "ready_at": ((n,), np.float64),
            "took_s": ((n,), np.float64),
        }
        for name, shape in spec.observations.items():
            kind = (n, *shape), dtype_of(name)
            layout[f"observation.{name}"] = layout[f"final.{name}"] = kind
        return layout

    @staticmethod
    def blank(spec: EnvSpec, num_envs: int) -> "StepBuffers":
        """Makes buffers in the memory of this process."""
        layout = StepBuffers.layout(spec, num_envs)
        return StepBuffers(spec, {name: np.zeros(shape, t) for name, (shape, t) in layout.items()})

    def show(self, rows: Any, observation: Observation) -> None:
        """Writes observations without a step."""
        for name, values in observation.items():
            self.observation[name][rows] = values

    def put(self, envs: np.ndarray, done: StepBatch) -> None:
        """Writes the results of environments (m,); the caller sets their state."""
        rows = _rows(envs)
        self.show(rows, done.observation)
        self.reward[rows] = done.reward
        self.terminated[rows], self.truncated[rows] = done.terminated, done.truncated
        if done.final is not None:
            cut = envs[done.truncated]
            for name, values in done.final.items():
                self.final[name][cut] = values

    def take(self, envs: np.ndarray) -> StepBatch:
        """Returns copies of the results of environments (m,), without their episodes."""
        truncated = self.truncated[envs]
        final = None
        if truncated.any():
            cut = envs[truncated]
            final = {name: values[cut] for name, values in self.final.items()}
        shown = {name: values[envs] for name, values in self.observation.items()}
        return StepBatch(shown, self.reward[envs], self.terminated[envs], truncated, final)

    def ready(self) -> np.ndarray:
        """Returns environments (m,) whose step was not received yet, longest ready first."""
        envs = np.flatnonzero(self.state == READY)
        return envs[np.argsort(self.ready_at[envs], kind="stable")]

    def idle(self) -> np.ndarray:
        """Returns environments (m,) that may be sent an action, longest idle first."""
        envs = np.flatnonzero(self.state == IDLE)
        return envs[np.argsort(self.ready_at[envs], kind="stable")]

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Returns the arrays that a snapshot needs beside the environments."""
        arrays = {name: getattr(self, name).copy() for name in _PLAIN}
        cut = (self.state != IDLE) & self.truncated
        return arrays | {f"final.{name}": values[cut] for name, values in self.final.items()}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restores the arrays of `to_arrays`.

        Raises:
            UserError: the arrays are of other environments.
        """
        try:
            if not np.isin(arrays["state"], (IDLE, STEPPING, READY)).all():
                raise ValueError("a state in which no snapshot is taken")
            for name in _PLAIN:
                getattr(self, name)[:] = arrays[name]
            cut = (self.state != IDLE) & self.truncated
            for name, values in self.final.items():
                values[cut] = arrays[f"final.{name}"]
        except (KeyError, ValueError) as error:
            raise UserError(f"snapshot: not a snapshot of these environments ({error!r})") from None


def check_finite(names: Sequence[int], starts: Sequence[int], fields: Observation) -> None:
    """Checks that values (m, ...) of environments are finite; others would ruin the policy.

    Args:
        names: numbers of the environments (m,)
        starts: numbers of the start states of their episodes (m,)
        fields: values by name

    Raises:
        RunError: a value is not finite; names the first environment and field.
    """
    for name, values in fields.items():
        # A finite sum has only finite summands, and costs less than checking each of them.
        if np.isfinite(values.sum()):
            continue
        wrong = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
        for row in np.flatnonzero(wrong).tolist():
            raise RunError(f"environment {names[row]} (start {starts[row]}): {name} is not finite")


def episodes_to_json(episodes: Sequence[EpisodeStats]) -> list[Json]:
    """Converts episodes to JSON types."""
    return [dataclasses.asdict(episode) for episode in episodes]


def episodes_from_json(note: Any) -> list[EpisodeStats]:
    """Converts the result of `episodes_to_json` back to episodes.

    Raises:
        UserError: the note does not hold episodes.
    """
    return records.decode(note, list[EpisodeStats], "snapshot: episodes")


def _rows(envs: np.ndarray) -> Any:
    """Returns a slice if the environments are consecutive, which copies faster."""
    if len(envs) and envs[-1] - envs[0] + 1 == len(envs) and (np.diff(envs) == 1).all():
        return slice(int(envs[0]), int(envs[-1]) + 1)
    return envs
