"""What came of steps, until it is received; the arrays may be shared by processes."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tpsrl.errors import RunError, UserError
from tpsrl.rl.envs.pictures import dtype_of
from tpsrl.rl.envs.shared import ArrayLayout
from tpsrl.rl.envs.vec_env import EnvSpec, EpisodeStats, Json, Observation, StepBatch
from tpsrl.runtime import records

# Of an environment: may be sent an action, stepping, with a step that was not received yet, and
# without a process for the time being.
IDLE, STEPPING, READY, LAUNCHING = range(4)

_PLAIN = ("state", "reward", "terminated", "truncated", "ready_at")  # what a snapshot holds


class NamedArrays(Protocol):
    """Arrays by name."""

    def __getitem__(self, name: str, /) -> np.ndarray:
        """One of them."""
        ...


class StepBuffers:
    """The arrays of n environments, by environment.

    `observation` (n, ...) by name is what each shows now. `ready_at` (n,) orders the steps that
    are ready in time, `took_s` (n,) is how long each was, with the others of its process and with
    resets.
    """

    def __init__(self, spec: EnvSpec, arrays: NamedArrays) -> None:
        """Over `arrays` of the `layout`."""
        self.actions, self.state = arrays["actions"], arrays["state"]
        self.reward, self.took_s = arrays["reward"], arrays["took_s"]
        self.terminated, self.truncated = arrays["terminated"], arrays["truncated"]
        self.ready_at = arrays["ready_at"]
        self.observation = {name: arrays[f"observation.{name}"] for name in spec.observations}
        self.final = {name: arrays[f"final.{name}"] for name in spec.observations}

    @staticmethod
    def layout(spec: EnvSpec, num_envs: int) -> ArrayLayout:
        """What the arrays are."""
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
        """Arrays of this process alone."""
        layout = StepBuffers.layout(spec, num_envs)
        return StepBuffers(spec, {name: np.zeros(shape, t) for name, (shape, t) in layout.items()})

    def show(self, rows: Any, observation: Observation) -> None:
        """What environments show, without a step."""
        for name, values in observation.items():
            self.observation[name][rows] = values

    def put(self, envs: np.ndarray, done: StepBatch) -> None:
        """What came of the steps of environments (m,); their state is the caller's business."""
        rows = _rows(envs)
        self.show(rows, done.observation)
        self.reward[rows] = done.reward
        self.terminated[rows], self.truncated[rows] = done.terminated, done.truncated
        if done.final is not None:
            cut = envs[done.truncated]
            for name, values in done.final.items():
                self.final[name][cut] = values

    def take(self, envs: np.ndarray) -> StepBatch:
        """What came of the steps of environments (m,), without their episodes; copies."""
        truncated = self.truncated[envs]
        final = None
        if truncated.any():
            cut = envs[truncated]
            final = {name: values[cut] for name, values in self.final.items()}
        shown = {name: values[envs] for name, values in self.observation.items()}
        return StepBatch(shown, self.reward[envs], self.terminated[envs], truncated, final)

    def ready(self) -> np.ndarray:
        """Environments (m,) whose step was not received yet, the longest ready first."""
        envs = np.flatnonzero(self.state == READY)
        return envs[np.argsort(self.ready_at[envs], kind="stable")]

    def idle(self) -> np.ndarray:
        """Environments (m,) that may be sent an action, the longest idle first."""
        envs = np.flatnonzero(self.state == IDLE)
        return envs[np.argsort(self.ready_at[envs], kind="stable")]

    def to_arrays(self) -> dict[str, np.ndarray]:
        """What a snapshot needs beside the environments."""
        arrays = {name: getattr(self, name).copy() for name in _PLAIN}
        cut = (self.state != IDLE) & self.truncated
        return arrays | {f"final.{name}": values[cut] for name, values in self.final.items()}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Puts back what `to_arrays` gave.

        Raises:
            UserError: it is of other environments.
        """
        try:
            if not np.isin(arrays["state"], (IDLE, STEPPING, READY)).all():
                raise ValueError("a state in which none is saved")
            for name in _PLAIN:
                getattr(self, name)[:] = arrays[name]
            cut = (self.state != IDLE) & self.truncated
            for name, values in self.final.items():
                values[cut] = arrays[f"final.{name}"]
        except (KeyError, ValueError) as error:
            raise UserError(f"snapshot: not of such environments ({error!r})") from None


def check_finite(names: Sequence[int], starts: Sequence[int], fields: Observation) -> None:
    """Refuses values (m, ...) of environments that are not finite: a policy would be lost for good.

    Args:
        names: of the environments (m,)
        starts: numbers of the start states of their episodes (m,)
        fields: by name

    Raises:
        RunError: names the first environment and field.
    """
    for name, values in fields.items():
        # A sum is finite only if all that it is made of is, and costs less than asking each.
        if np.isfinite(values.sum()):
            continue
        wrong = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
        for row in np.flatnonzero(wrong).tolist():
            raise RunError(f"environment {names[row]} (start {starts[row]}): {name} is not finite")


def episodes_to_json(episodes: Sequence[EpisodeStats]) -> list[Json]:
    """JSON types."""
    return [dataclasses.asdict(episode) for episode in episodes]


def episodes_from_json(note: Any) -> list[EpisodeStats]:
    """The episodes of `episodes_to_json`.

    Raises:
        UserError: they are none.
    """
    return records.decode(note, list[EpisodeStats], "snapshot: episodes")


def _rows(envs: np.ndarray) -> Any:
    """A slice where environments are neighbours, which copies faster."""
    if len(envs) and envs[-1] - envs[0] + 1 == len(envs) and (np.diff(envs) == 1).all():
        return slice(int(envs[0]), int(envs[-1]) + 1)
    return envs
