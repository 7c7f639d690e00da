"""A rollout: a linear buffer of steps from any number of environments (VER, section 2.2).

A row is written when an action is sent to its environment, and completed when the step is ready.
The collector decides which environments act when, and how often:

    rollout.begin()
    while not rollout.full:
        step = policy.act(observation, *rollout.inputs(envs))
        rollout.add(envs, observation, action=..., log_prob=..., value=step.value,
                    next_memory=step.memory, version=...)
        ...                                                     # the environments step
        rollout.complete(envs, reward, terminated, truncated, final)
    rollout.finish(policy, observe)

An environment has at most one action in flight, so rows are addressed by environment. Rows in
flight when the rollout is full are the first rows of the next rollout: `begin` carries them over
with everything that was recorded when their actions were chosen. The rollout also holds the
policy's memory and previous action of each environment, which continue across rollouts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from tpsrl.errors import UserError
from tpsrl.rl.envs.pictures import dtype_of
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.runtime import records

Envs = Sequence[int] | np.ndarray
AnyObservation = Mapping[str, Any]  # as numpy arrays or tensors, on any device
_ALONG = ("previous_action", "action", "log_prob", "value", "memory")
_ABOUT = ("env", "is_first", "version")


class Chosen(Protocol):
    """Part of a policy's step that finishing a rollout needs."""

    @property
    def value(self) -> torch.Tensor:
        """Estimated return (n,)."""
        ...


class Actor(Protocol):
    """Part of a policy that finishing a rollout needs."""

    def act(
        self,
        observation: dict[str, torch.Tensor],
        previous_action: torch.Tensor,
        memory: torch.Tensor,
        is_first: torch.Tensor,
    ) -> Chosen:
        """Computes one step."""
        ...


class Rollout:
    """Rows in the order in which actions were sent; full with `size` complete rows.

    The columns have `size + num_envs` rows, since every environment may have one more in flight.
    Tensors on `device`, read by the network: observation (name -> (rows, ...)), previous_action and
    action (rows, A), memory (rows, M) before the step, log_prob, value, and the learner's advantage
    and returns (rows,). Numpy arrays, for bookkeeping: env, version (of the policy that chose the
    action), generation (number of the rollout that a row belongs to), is_first (of its episode),
    is_complete, terminated, truncated, reward, bootstrap (rows,).

    `rows` are the rows to learn from once the rollout is finished: the fresh ones in row order,
    which is the order in time within each environment, then any rows of earlier rollouts with which
    the rollout was filled up.

    Args:
        spec: shapes of observations and actions; of a policy with frozen encoder,
            `tpsrl.rl.policy.actor_critic.ActorCritic.rollout_spec`
        num_envs: environments, numbered from 0
        size: complete rows of a full rollout, T x N
        memory_size: length M of the policy's memory, 0 for none
        device: of the columns that the network reads
    """

    def __init__(
        self,
        spec: EnvSpec,
        num_envs: int,
        size: int,
        memory_size: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.num_envs, self.size, self.capacity = num_envs, size, size + num_envs
        self.device = torch.device(device)

        def column(*shape: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.zeros(self.capacity, *shape, dtype=kind, device=self.device)

        self.observation = {
            name: column(*shape, kind=torch.uint8 if dtype_of(name) is np.uint8 else torch.float32)
            for name, shape in spec.observations.items()
        }
        self.previous_action, self.action = column(spec.action_size), column(spec.action_size)
        self.memory = column(memory_size)
        self.log_prob, self.value, self.advantage, self.returns = (column() for _ in range(4))

        self.env, self.version, self.generation = np.zeros((3, self.capacity), np.int64)
        self.is_first, self.is_complete = np.zeros((2, self.capacity), bool)
        self.terminated, self.truncated = np.zeros((2, self.capacity), bool)
        self.reward, self.bootstrap = np.zeros((2, self.capacity), np.float32)

        # Inputs of each environment's next action, besides its observation.
        self._next_previous = torch.zeros(num_envs, spec.action_size, device=self.device)
        self._next_memory = torch.zeros(num_envs, memory_size, device=self.device)
        self._next_is_first = np.ones(num_envs, bool)

        self._in_flight = np.full(num_envs, -1)  # row of each environment, -1 for none
        self._last = np.full(num_envs, -1)  # last complete row of each environment in this rollout
        self._finals: list[tuple[np.ndarray, tuple[Any, ...]]] = []  # rows, inputs of `act`
        self._generation = self._used = self._completed = 0
        self._rows: np.ndarray | None = None
        self.num_fresh = 0

    @property
    def room(self) -> int:
        """Number of rows that may still be completed; further steps wait for the next rollout."""
        return self.size - self._completed

    @property
    def full(self) -> bool:
        """Whether `size` rows are complete."""
        return self.room == 0

    @property
    def in_flight(self) -> np.ndarray:
        """Environments whose step is not complete yet, in ascending order."""
        return np.flatnonzero(self._in_flight >= 0)

    @property
    def rows(self) -> np.ndarray:
        """Rows to learn from (k,): `num_fresh` rows of this rollout, then stale ones."""
        if self._rows is None:
            raise ValueError("the rollout is not finished")
        return self._rows

    def begin(self, previous: "Rollout | None" = None) -> None:
        """Begins the next rollout with the rows in flight of `previous`, or of this one if None.

        The environments of `previous` continue in this rollout, so `previous` may be learned from
        meanwhile.
        """
        source = previous or self
        rows = np.sort(source._in_flight[source._in_flight >= 0])
        self._take(source, rows)
        if source is not self:
            self._next_previous.copy_(source._next_previous)
            self._next_memory.copy_(source._next_memory)
            self._next_is_first[:] = source._next_is_first
            source._in_flight[:] = -1
        self._generation = source._generation + 1
        self._used, self._completed, self._rows, self.num_fresh = len(rows), 0, None, 0
        self._last[:] = self._in_flight[:] = -1
        self._in_flight[self.env[: self._used]] = np.arange(self._used)
        self._mark(slice(0, self._used))
        self._finals.clear()

    def inputs(self, envs: Envs) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns the policy's inputs: previous action (n, A), memory (n, M), is_first (n,)."""
        index = torch.as_tensor(np.asarray(envs, np.int64), device=self.device)
        is_first = torch.as_tensor(self._next_is_first[np.asarray(envs)], device=self.device)
        previous = self._next_previous.index_select(0, index)
        return previous, self._next_memory.index_select(0, index), is_first

    def add(
        self,
        envs: Envs,
        observation: AnyObservation,
        *,
        action: torch.Tensor,
        log_prob: torch.Tensor,
        value: torch.Tensor,
        next_memory: torch.Tensor,
        version: int,
    ) -> None:
        """Adds rows in flight for n environments, whose `inputs` the policy was given.

        Args:
            envs: (n,) numbers, each once
            observation: name -> (n, ...), observations that the policy acted on
            action: (n, A), masked parts 0
            log_prob: (n,) of the action, under the policy that chose it
            value: (n,)
            next_memory: (n, M) of the policy after the step
            version: version of the policy
        """
        envs = np.asarray(envs, np.int64)
        first, end = self._used, self._used + len(envs)
        if self._rows is not None:
            raise ValueError("the rollout is finished: begin the next one")
        if (self._in_flight[envs] >= 0).any() or len(np.unique(envs)) < len(envs):
            raise ValueError("an environment acts again before its last action is complete")
        rows, index = slice(first, end), torch.as_tensor(envs, device=self.device)
        for name, column in self.observation.items():
            column[rows] = torch.as_tensor(observation[name])
        torch.index_select(self._next_previous, 0, index, out=self.previous_action[rows])
        torch.index_select(self._next_memory, 0, index, out=self.memory[rows])
        self.action[rows], self.log_prob[rows], self.value[rows] = action, log_prob, value
        self.env[rows], self.version[rows] = envs, version
        self.is_first[rows] = self._next_is_first[envs]
        self._next_previous.index_copy_(0, index, action)
        self._next_memory.index_copy_(0, index, next_memory)
        self._next_is_first[envs] = False
        self._in_flight[envs] = np.arange(first, end)
        self._used = end
        self._mark(rows)

    def complete(
        self,
        envs: Envs,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        final: AnyObservation | None = None,
    ) -> None:
        """Completes the steps (n,) in flight of n environments, at most `room` of them.

        `final` has, for the rows under `truncated` and in their order, the observation from which
        the policy would have acted next (`StepBatch.final`); it is copied. A step that terminated
        counts as terminated only, even if it was also the last before a time limit.
        """
        envs = np.asarray(envs, np.int64)
        terminated, truncated = np.asarray(terminated, bool), np.asarray(truncated, bool)
        rows = self._in_flight[envs]
        if (rows < 0).any() or len(np.unique(rows)) < len(rows):
            raise ValueError("a step is complete without an action in flight")
        if len(rows) > self.room:
            raise ValueError(f"{len(rows)} steps, but room for {self.room}")
        self.reward[rows] = reward
        self.terminated[rows] = terminated
        self.truncated[rows] = truncated & ~terminated
        self.is_complete[rows] = True
        self._in_flight[envs], self._last[envs] = -1, rows
        self._completed += len(rows)
        if self.truncated[rows].any():
            if final is None:
                raise ValueError("a truncated episode needs its final observation")
            self._keep_finals(envs[truncated], final, ~terminated[truncated])
        self._restart(envs[terminated | truncated])

    def drop(self, envs: Envs) -> None:
        """Removes the unfinished episodes of lost environments.

        Their rows since the last end of an episode, in flight or complete, are removed and make
        room. The next action of each of these environments begins an episode.
        """
        envs = np.asarray(envs, np.int64)
        keep = np.ones(self._used, bool)
        over = (self.terminated | self.truncated)[: self._used] & self.is_complete[: self._used]
        for env in envs:
            rows = np.flatnonzero(self.env[: self._used] == env)
            ends = rows[over[rows]]
            self._last[env] = ends[-1] if len(ends) else -1
            keep[rows[rows > self._last[env]]] = False
            self._in_flight[env] = -1
        new = np.cumsum(keep) - 1
        for table in (self._in_flight, self._last):
            table[:] = np.where(table >= 0, new[table], -1) if len(new) else -1
        self._finals = [(new[rows], inputs) for rows, inputs in self._finals]
        self._completed -= int((self.is_complete[: self._used] & ~keep).sum())
        self._compact(np.flatnonzero(keep))
        self._restart(envs)

    def finish(
        self, policy: Actor, observe: Callable[[np.ndarray], AnyObservation], fill: bool = False
    ) -> None:
        """Finishes the rollout, which need not be full.

        Where a sequence of rows is cut but its return continues, the value of the next state is
        stored in `bootstrap`. If the next action of the environment is in flight, this value is
        known. After a truncated episode, and where an environment has not acted again after its
        last step, the policy estimates it, in one batch for all.

        Args:
            policy: policy of the last actions, which estimates values
            observe: returns for environments (m,) the observations (m, ...) from which their next
                actions would be chosen
            fill: whether a preempted rollout is filled up to `size` with the youngest rows of
                earlier rollouts that were not overwritten, at most `num_envs` short of `size` (VER,
                section 2.3); these rows keep their recorded and computed values
        """
        last = self._last[self._last >= 0]
        goes_on = last[~(self.terminated | self.truncated)[last]]
        known = goes_on[self._in_flight[self.env[goes_on]] >= 0]
        following = self._in_flight[self.env[known]]
        if len(known):
            self.bootstrap[known] = self.value[torch.as_tensor(following)].float().cpu().numpy()
        self._estimate(policy, observe, goes_on[self._in_flight[self.env[goes_on]] < 0])
        fresh = np.flatnonzero(self.is_complete[: self._used])
        stale = self._stale(self.size - len(fresh)) if fill else fresh[:0]
        self._rows, self.num_fresh = np.concatenate((fresh, stale)), len(fresh)

    def taken(self) -> np.ndarray:
        """Returns the number of rows of each environment (num_envs,), including those in flight."""
        return np.bincount(self.env[: self._used], minlength=self.num_envs)

    def counts(self) -> np.ndarray:
        """Returns the number of fresh rows of each environment (num_envs,), once finished."""
        return np.bincount(self.env[self.rows[: self.num_fresh]], minlength=self.num_envs)

    def state_dict(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Returns the state that continues beyond the rollout's end: tensors, and JSON types.

        The state consists of the rows in flight and the environments' memory and previous action.
        It has no stale rows, so a rollout preempted right after a resumption is not filled up.
        """
        rows = np.sort(self._in_flight[self._in_flight >= 0])
        index = torch.as_tensor(rows, device=self.device)
        tensors = {f"rows.{k}": v[index].cpu() for k, v in self._tensors().items()}
        tensors |= {f"rows.{k}": torch.as_tensor(getattr(self, k)[rows]) for k in _ABOUT}
        tensors["next.previous_action"] = self._next_previous.cpu().clone()
        tensors["next.memory"] = self._next_memory.cpu().clone()
        tensors["next.is_first"] = torch.as_tensor(self._next_is_first.copy())
        return tensors, {"generation": self._generation}

    def load_state_dict(self, tensors: dict[str, torch.Tensor], note: dict[str, Any]) -> None:
        """Continues from a `state_dict`; `begin` must be called next.

        Raises:
            UserError: the state is of other environments or another policy.
        """
        self._check(tensors, note)
        count = len(tensors["rows.env"])
        rows = slice(0, count)
        for name, column in self._tensors().items():
            column[rows] = tensors[f"rows.{name}"].to(self.device)
        for name in _ABOUT:
            getattr(self, name)[rows] = tensors[f"rows.{name}"].numpy()
        self._next_previous.copy_(tensors["next.previous_action"])
        self._next_memory.copy_(tensors["next.memory"])
        self._next_is_first[:] = tensors["next.is_first"].numpy()
        self.is_complete[:] = False
        self._generation = note["generation"]
        self._in_flight[:] = self._last[:] = -1
        self._in_flight[self.env[rows]] = np.arange(count)
        self._used, self._completed, self._rows, self.num_fresh = count, 0, None, 0
        self._finals.clear()

    def _check(self, tensors: dict[str, torch.Tensor], note: dict[str, Any]) -> None:
        """Raises `UserError` if a state does not fit this rollout."""
        expected = {f"rows.{name}": t.shape[1:] for name, t in self._tensors().items()}
        expected |= {f"rows.{name}": torch.Size() for name in _ABOUT}
        expected["next.previous_action"] = self._next_previous.shape
        expected["next.memory"] = self._next_memory.shape
        expected["next.is_first"] = torch.Size([self.num_envs])
        for name, shape in expected.items():
            given = tensors[name].shape if name in tensors else None
            if given is not None and name.startswith("rows."):
                given = given[1:]
            if given != shape:
                raise UserError(
                    f"rollout: {name} is {_shape(given)} in the checkpoint, {_shape(shape)} here"
                )
        numbers = tensors["rows.env"].tolist()
        lengths = {len(tensors[name]) for name in expected if name.startswith("rows.")}
        if lengths != {len(numbers)} or len({*numbers} & {*range(self.num_envs)}) != len(numbers):
            raise UserError("rollout: the rows in flight in the checkpoint do not fit together")
        records.decode(note.get("generation"), records.Count, "rollout: generation")

    def _tensors(self) -> dict[str, torch.Tensor]:
        """Returns the columns on the device that are written when an action is chosen."""
        observations = {f"observation.{name}": t for name, t in self.observation.items()}
        return observations | {name: getattr(self, name) for name in _ALONG}

    def _take(self, source: "Rollout", rows: np.ndarray) -> None:
        """Copies what was recorded at the choice of actions to the first rows of this rollout."""
        index = torch.as_tensor(rows, device=source.device)
        theirs = source._tensors()
        for name, column in self._tensors().items():
            column[: len(rows)] = theirs[name][index].to(self.device)
        for name in _ABOUT:
            getattr(self, name)[: len(rows)] = getattr(source, name)[rows]

    def _mark(self, rows: slice) -> None:
        """Marks rows as in flight, of this rollout."""
        self.generation[rows] = self._generation
        self.is_complete[rows] = self.terminated[rows] = self.truncated[rows] = False
        self.reward[rows] = self.bootstrap[rows] = 0.0

    def _compact(self, rows: np.ndarray) -> None:
        """Moves the given rows to the front and drops all others in use."""
        self._take(self, rows)
        for column in (self.is_complete, self.terminated, self.truncated, self.reward):
            column[: len(rows)] = column[rows]
        self.is_complete[len(rows) : self._used] = False
        self._used = len(rows)

    def _restart(self, envs: np.ndarray) -> None:
        """Makes the next actions of these environments the first of an episode."""
        if len(envs):
            index = torch.as_tensor(envs, device=self.device)
            self._next_previous[index] = 0.0
            self._next_memory[index] = 0.0
            self._next_is_first[envs] = True

    def _keep_finals(self, envs: np.ndarray, final: AnyObservation, wanted: np.ndarray) -> None:
        """Keeps the policy's inputs for the value at the end of truncated episodes."""
        envs = envs[wanted]
        chosen = torch.as_tensor(np.flatnonzero(wanted))
        observation = {
            name: torch.as_tensor(values).cpu()[chosen].to(self.device)
            for name, values in final.items()
        }
        self._finals.append((self._last[envs], (observation, *self.inputs(envs))))

    def _estimate(
        self, policy: Actor, observe: Callable[[np.ndarray], AnyObservation], open_rows: np.ndarray
    ) -> None:
        """Estimates the bootstrap of open rows and of truncated episodes, in one batch."""
        parts = list(self._finals)
        if len(open_rows):
            envs = self.env[open_rows]
            shown = observe(envs)
            here = {name: torch.as_tensor(v).to(self.device) for name, v in shown.items()}
            parts.append((open_rows, (here, *self.inputs(envs))))
        if not parts:
            return
        names = parts[0][1][0]
        seen = {name: torch.cat([inputs[0][name] for _, inputs in parts]) for name in names}
        rest = [torch.cat([inputs[k] for _, inputs in parts]) for k in (1, 2, 3)]
        with torch.no_grad():
            value = policy.act(seen, *rest).value
        self.bootstrap[np.concatenate([rows for rows, _ in parts])] = (
            value.detach().float().cpu().numpy()
        )

    def _stale(self, count: int) -> np.ndarray:
        """Returns up to `count` of the youngest rows of earlier rollouts not yet overwritten."""
        rows = np.flatnonzero(self.is_complete[self._used :]) + self._used
        ordered = rows[np.lexsort((rows, self.generation[rows]))]
        return ordered[max(len(ordered) - count, 0) :]


def _shape(shape: Sequence[int] | None) -> str:
    return "missing" if shape is None else f"of shape {tuple(shape)}"
