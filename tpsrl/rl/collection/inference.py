"""Inference: batches of environments, and the actions that a policy chooses for them."""

import dataclasses
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from tpsrl.rl.policy import gaussian
from tpsrl.rl.policy.acting import ActingPolicy


@dataclasses.dataclass(slots=True)
class Batch:
    """Environments (m,) that act next, and the inputs of their actions.

    `shown` (m, ...) are the observations by name, `inputs` those of `Rollout.inputs`, and `noise`
    (m, A) is the noise of the actions. `ready_at` (m,) is when the last step of each environment
    was ready, `chosen_at` when the environments were chosen to act next, and `away` the last
    interval (start, end) in which the learner used the process. `valid` (m,) is False for
    environments that were lost since.
    """

    envs: np.ndarray
    shown: dict[str, torch.Tensor]
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    noise: torch.Tensor
    ready_at: np.ndarray
    chosen_at: float
    away: tuple[float, float]
    valid: np.ndarray

    def only(self, rows: np.ndarray) -> "Batch":
        """Returns the part of the batch under `rows` (m,) bool."""
        index = torch.from_numpy(rows).to(self.noise.device)
        shown = {name: tensor[index] for name, tensor in self.shown.items()}
        previous, memory, is_first = (tensor[index] for tensor in self.inputs)
        return Batch(
            self.envs[rows],
            shown,
            (previous, memory, is_first),
            self.noise[index],
            self.ready_at[rows],
            self.chosen_at,
            self.away,
            self.valid[rows],
        )


@dataclasses.dataclass(slots=True)
class Choice:
    """A policy's output for a batch: tensors that a rollout keeps, and the actions as `array`."""

    policy: ActingPolicy
    mean: torch.Tensor  # (m, A)
    action: torch.Tensor  # (m, A)
    std: torch.Tensor  # (m, A) of the distribution that the action was drawn from
    value: torch.Tensor  # (m,)
    memory: torch.Tensor  # (m, M), after the step
    vision: torch.Tensor | None  # (m, V), output of a frozen encoder
    array: np.ndarray  # (m, A)

    def only(self, rows: np.ndarray) -> "Choice":
        """Returns the part of the output under `rows` (m,) bool."""
        index = torch.from_numpy(rows).to(self.action.device)
        return Choice(
            self.policy,
            self.mean[index],
            self.action[index],
            self.std[index],
            self.value[index],
            self.memory[index],
            None if self.vision is None else self.vision[index],
            self.array[rows],
        )


def choose(policy: ActingPolicy, batch: Batch) -> Choice:
    """Chooses the actions of a batch. It has no side effects, so threads may call it at once."""
    with torch.inference_mode():
        step = policy.act(batch.shown, *batch.inputs)
        action = gaussian.displaced(step.mean, step.std, policy.mask, batch.noise)
        assert step.memory is not None
        array = action.cpu().numpy()
        return Choice(
            policy, step.mean, action, step.std, step.value, step.memory, step.vision, array
        )


class InferenceThreads:
    """Threads that choose actions, beside the collector's own thread, which does everything else.

    Args:
        count: number of threads, 0 for none
        num_envs: number of environments
        wake: called from a thread when it has finished a batch
    """

    def __init__(self, count: int, num_envs: int, wake: Callable[[], None]) -> None:
        self._count, self._wake = count, wake
        self._executor = ThreadPoolExecutor(count, "tpsrl inference") if count else None
        self._tasks: list[tuple[Batch, Future[Choice]]] = []
        self.held = np.zeros(num_envs, bool)  # environments whose actions are being chosen

    @property
    def free(self) -> int:
        """Number of idle threads, including those whose result was not collected yet."""
        return self._count - sum(not task.done() for _, task in self._tasks)

    def submit(self, policy: ActingPolicy, batch: Batch) -> None:
        """Has a thread choose a batch's actions. The policy must not change until then."""
        assert self._executor is not None
        self.held[batch.envs] = True
        task = self._executor.submit(choose, policy, batch)
        self._tasks.append((batch, task))
        task.add_done_callback(lambda _: self._wake())

    def collect(self, wait: bool = False) -> list[tuple[Batch, Choice]]:
        """Returns the finished batches since the last call; with `wait`, all that were submitted.

        Raises the exception of a thread that failed.
        """
        ended = [wait or task.done() for _, task in self._tasks]
        collected = [pair for pair, over in zip(self._tasks, ended, strict=True) if over]
        self._tasks = [pair for pair, over in zip(self._tasks, ended, strict=True) if not over]
        for batch, _ in collected:
            self.held[batch.envs] = False
        return [(batch, task.result()) for batch, task in collected]

    def drop(self, envs: np.ndarray) -> None:
        """Marks environments (m,) as lost; actions that are being chosen for them become void."""
        for batch, _ in self._tasks:
            batch.valid &= ~np.isin(batch.envs, envs)

    def close(self) -> None:
        """Ends the threads; safe to call twice."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
