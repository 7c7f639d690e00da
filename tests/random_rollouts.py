"""A small recurrent policy, and a driver that fills rollouts in random interleavings.

The driver keeps its own record of each environment, with which tests compare the rollouts.
"""

import copy
import dataclasses
import functools
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.policy import gaussian
from tpsrl.rl.policy.recurrent import Pack

MASK = (True, False, True)
SPEC = EnvSpec({"state": (4,), "depth": (2, 3)}, MASK)
WIDTH = 5


@dataclasses.dataclass
class Step:
    mean: torch.Tensor
    std: torch.Tensor
    value: torch.Tensor
    memory: torch.Tensor | None


class TinyPolicy(nn.Module):
    """A policy with one LSTM layer, whose memory is (h, c)."""

    memory_size = 2 * WIDTH
    moments: ClassVar[dict[str, Any]] = {}  # no observation is normalised

    def towers(self) -> list[Any]:
        """Returns no towers: no observation is an image with channels."""
        return []

    def __init__(self, spec: EnvSpec = SPEC, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            sizes = sum(int(np.prod(shape)) for shape in spec.observations.values())
            self.lstm = nn.LSTM(sizes + spec.action_size, WIDTH)
            self.head = nn.Linear(WIDTH, spec.action_size + 1)
            self.log_std = nn.Parameter(torch.full((spec.action_size,), -0.5))
        self.register_buffer("mask", torch.tensor(spec.mask), persistent=False)
        self.register_buffer("amounts", self.mask.clone(), persistent=False)
        self.calls: list[int] = []  # rows of each call of `act`

    def act(self, observation, previous_action, memory, is_first):
        self.calls.append(len(memory))
        previous_action = previous_action.masked_fill(is_first[:, None], 0.0)
        memory = memory.masked_fill(is_first[:, None], 0.0)
        x = self.joined(observation, previous_action)[None]
        hidden = memory.view(1, -1, 2, WIDTH).unbind(2)
        out, (h, c) = self.lstm(x, tuple(part.contiguous() for part in hidden))
        return self.step(out[0], torch.cat((h[0], c[0]), dim=1))

    def evaluate(self, observation, previous_action, pack: Pack):
        hidden = pack.memory.view(1, -1, 2, WIDTH).unbind(2)
        x = PackedSequence(self.joined(observation, previous_action), pack.batch_sizes)
        out = self.lstm(x, tuple(part.contiguous() for part in hidden))[0].data
        return self.step(out, None)

    def log_prob(self, mean, std, action, noise=None):
        if noise is not None:
            return gaussian.log_prob_of(std, self.mask, noise)
        return gaussian.log_prob(mean, std, action, self.mask)

    def entropy(self, mean, std):
        return gaussian.entropy(std, self.mask)

    def joined(self, observation, previous_action):
        parts = [t.flatten(1) for t in observation.values()]
        return torch.cat([*parts, previous_action], dim=1)

    def step(self, features, memory):
        out = self.head(features)
        mean = torch.where(self.mask, out[:, :-1], 0.0)
        return Step(mean, self.log_std.exp().expand_as(mean), out[:, -1], memory)


@dataclasses.dataclass
class Seen:
    """A transition as recorded by the driver, with memory and value computed step by step."""

    env: int
    observation: dict[str, np.ndarray]
    previous_action: torch.Tensor
    memory: torch.Tensor
    action: torch.Tensor
    log_prob: float
    value: float
    version: int
    is_first: bool
    next_memory: torch.Tensor
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    final: dict[str, np.ndarray] | None = None
    rollout: int = -1  # in which it was completed; -1: in none yet


class Driver:
    """Environments with random steps; which of them act and complete is random, too."""

    def __init__(self, policy: Any, num_envs: int, seed: int, end: float = 0.1) -> None:
        self.policy, self.num_envs, self.end = policy, num_envs, end
        self.rng = np.random.default_rng(seed)
        self.shown = [self.look() for _ in range(num_envs)]
        self.seen: list[list[Seen]] = [[] for _ in range(num_envs)]
        self.speed = self.rng.uniform(0.1, 1.0, num_envs)
        self.rollouts = 0

    def look(self) -> dict[str, np.ndarray]:
        return {
            name: self.rng.normal(size=shape).astype(np.float32)
            for name, shape in SPEC.observations.items()
        }

    def observe(self, envs) -> dict[str, np.ndarray]:
        return {name: np.stack([self.shown[e][name] for e in envs]) for name in SPEC.observations}

    def flying(self, env: int) -> bool:
        return bool(self.seen[env]) and self.seen[env][-1].rollout < 0

    def collect(self, rollout: Rollout, version: int = 0, count: int | None = None, **finish):
        """Plays until `count` rows are complete (default: the whole rollout), and finishes."""
        self.play(rollout, version, rollout.size if count is None else count)
        rollout.finish(self.policy, self.observe, **finish)
        self.rollouts += 1

    def play(self, rollout: Rollout, version: int, count: int) -> None:
        """Plays until `count` rows are complete."""
        while rollout.size - rollout.room < count:
            chosen = self.rng.permutation(np.flatnonzero(self.rng.random(self.num_envs) < 0.5))
            ready = [e for e in chosen if not self.flying(e)]
            if ready:
                self.act(rollout, np.array(ready), version)
            ready = [e for e in rollout.in_flight if self.rng.random() < self.speed[e]]
            left = count - (rollout.size - rollout.room)
            self.complete(rollout, np.array(ready[:left], int))

    def lose(self, rollout: Rollout, envs: list[int]) -> None:
        """Replaces environments by new ones; their unfinished episodes are lost."""
        rollout.drop(envs)
        for env in envs:
            history = self.seen[env]
            while history and not (history[-1].terminated or history[-1].truncated):
                history.pop()
            self.shown[env] = self.look()

    def act(self, rollout: Rollout, envs: np.ndarray, version: int) -> None:
        observation = self.observe(envs)
        tensors = {name: torch.as_tensor(array) for name, array in observation.items()}
        with torch.inference_mode():
            step = self.policy.act(tensors, *rollout.inputs(envs))
            noise = torch.as_tensor(self.rng.normal(size=step.mean.shape), dtype=torch.float32)
            action = torch.where(self.policy.mask, step.mean + step.std * noise, 0.0)
            log_prob = gaussian.log_prob(step.mean, step.std, action, self.policy.mask)
            rollout.add(
                envs,
                observation,
                action=action,
                log_prob=log_prob,
                value=step.value,
                next_memory=step.memory,
                version=version,
            )
        for row, env in enumerate(envs):
            self.note(int(env), {n: a[row] for n, a in observation.items()}, action[row], version)
            self.seen[env][-1].log_prob = float(log_prob[row])

    def note(self, env: int, observation, action, version: int) -> None:
        """Records an action, with memory and value from the policy on this row alone."""
        last = self.seen[env][-1] if self.seen[env] else None
        start = last is None or last.terminated or last.truncated
        previous = torch.zeros(SPEC.action_size) if start else last.action
        memory = torch.zeros(self.policy.memory_size) if start else last.next_memory
        step = self.alone(observation, previous, memory)
        value, after = float(step.value), step.memory[0]
        entry = (env, observation, previous, memory, action, 0.0, value, version, start, after)
        self.seen[env].append(Seen(*entry))

    def alone(self, observation, previous, memory):
        tensors = {name: torch.as_tensor(array)[None] for name, array in observation.items()}
        calls = list(self.policy.calls)
        with torch.no_grad():
            step = self.policy.act(tensors, previous[None], memory[None], torch.tensor([False]))
        self.policy.calls = calls
        return step

    def complete(self, rollout: Rollout, envs: np.ndarray) -> None:
        reward = self.rng.normal(size=len(envs)).astype(np.float32)
        terminated = self.rng.random(len(envs)) < self.end
        truncated = self.rng.random(len(envs)) < self.end
        finals = []
        for row, env in enumerate(envs):
            seen = self.seen[env][-1]
            seen.reward, seen.rollout = float(reward[row]), self.rollouts
            seen.terminated = bool(terminated[row])
            seen.truncated = bool(truncated[row])
            if seen.truncated:
                seen.final = self.look()
                finals.append(seen.final)
            self.shown[env] = self.look()
        final = {n: np.stack([f[n] for f in finals]) for n in SPEC.observations} if finals else None
        rollout.complete(envs, reward, terminated, truncated, final)
        for array in (final or {}).values():
            array[:] = np.nan  # the rollout must have copied it

    def completed(self, number: int) -> list[list[Seen]]:
        """Returns the transitions completed in a rollout, by environment."""
        return [[s for s in history if s.rollout == number] for history in self.seen]

    def following(self, seen: Seen) -> float:
        """Returns the value of the state after a transition, by the current policy."""
        if seen.terminated:
            return 0.0
        if seen.truncated:
            return float(self.alone(seen.final, seen.action, seen.next_memory).value)
        history = self.seen[seen.env]
        index = next(i for i, s in enumerate(history) if s is seen)
        if index + 1 < len(history):
            return history[index + 1].value
        return float(self.alone(self.shown[seen.env], seen.action, seen.next_memory).value)


def make_rollout(policy: Any, num_envs: int = 5, size: int = 60) -> Rollout:
    return Rollout(SPEC, num_envs, size, policy.memory_size)


def collected(
    seed: int = 0, num_envs: int = 5, size: int = 60, rollouts: int = 1, policy: Any = None
):
    """Returns a finished rollout, the last of `rollouts`, with its policy and driver."""
    if policy is not None:
        return _collected(policy, seed, num_envs, size, rollouts)
    return copy.deepcopy(_by_tiny_policy(seed, num_envs, size, rollouts))


@functools.cache
def _by_tiny_policy(seed: int, *sizes: int):
    return _collected(TinyPolicy(seed=seed), seed, *sizes)


def _collected(policy: Any, seed: int, num_envs: int, size: int, rollouts: int):
    rollout, driver = make_rollout(policy, num_envs, size), Driver(policy, num_envs, seed)
    for _ in range(rollouts):
        rollout.begin()
        driver.collect(rollout)
    return rollout, policy, driver


def sequences_of(rollout: Rollout) -> list[list[int]]:
    """Returns the rows of each sequence, by a plain loop.

    Sequences are cut at starts of episodes and between rollouts.
    """
    found: dict[tuple[int, int], list[list[int]]] = {}
    for row in sorted(rollout.rows):
        parts = found.setdefault((rollout.generation[row], rollout.env[row]), [])
        if rollout.is_first[row] or not parts:
            parts.append([])
        parts[-1].append(int(row))
    return [sequence for parts in found.values() for sequence in parts]
