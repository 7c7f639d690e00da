"""A rollout that is filled by whole steps of all environments without waiting for the device."""

from collections.abc import Mapping
from typing import Any

import torch

from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.envs.vec_env import EnvSpec

# Rows of `DeviceRollout._about`.
_ABOUT = ("reward", "bootstrap", "terminated", "truncated", "is_first")
_BOOTSTRAP, _IS_FIRST = _ABOUT.index("bootstrap"), _ABOUT.index("is_first")


class DeviceRollout(Rollout):
    """Rollout whose rows are step by step those of all environments, in their order.

    What the device computes about a step (reward, ends) stays there until the rollout is full:

        rollout.begin()
        while not rollout.full:
            step = policy.act(observation, *rollout.next_inputs())
            rollout.add_step(observation, action=..., log_prob=..., value=step.value,
                             next_memory=step.memory, version=...)
            ...                                                 # the environments step
            rollout.complete_step(reward, terminated, truncated, final_value)
        rollout.fetch(value)                                    # waits for the device once

    The arguments are those of `Rollout`; `size` is a multiple of `num_envs`.
    """

    def __init__(
        self,
        spec: EnvSpec,
        num_envs: int,
        size: int,
        memory_size: int,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(spec, num_envs, size, memory_size, device)
        self._about = torch.zeros(len(_ABOUT), size, device=self.device)
        self._fresh = torch.ones(num_envs, dtype=torch.bool, device=self.device)

    def next_inputs(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns the policy's inputs for all environments; see `inputs`."""
        return self._next_previous, self._next_memory, self._fresh

    def add_step(
        self,
        observation: Mapping[str, torch.Tensor],
        *,
        action: torch.Tensor,
        log_prob: torch.Tensor,
        value: torch.Tensor,
        next_memory: torch.Tensor,
        version: int,
    ) -> None:
        """Adds a row in flight for each environment; see `add` for the arguments."""
        first, end = self._used, self._used + self.num_envs
        rows = slice(first, end)
        for name, column in self.observation.items():
            column[rows] = observation[name]
        self.previous_action[rows], self.memory[rows] = self._next_previous, self._next_memory
        self.action[rows], self.log_prob[rows], self.value[rows] = action, log_prob, value
        self._about[_IS_FIRST, rows] = self._fresh.float()
        self._next_previous, self._next_memory = action, next_memory
        self.version[rows] = version
        self._used = end

    def complete_step(
        self,
        reward: torch.Tensor,
        terminated: torch.Tensor,
        truncated: torch.Tensor,
        final_value: torch.Tensor | None = None,
    ) -> None:
        """Completes the step in flight of each environment.

        Args:
            reward: (n,)
            terminated: (n,) bool
            truncated: (n,) bool; a step that terminated counts as terminated only
            final_value: (n,) value of the last observation of each episode; None if no episode is
                truncated
        """
        rows = slice(self._used - self.num_envs, self._used)
        truncated = truncated & ~terminated
        bootstrap = torch.zeros_like(reward) if final_value is None else final_value
        columns = (reward, torch.where(truncated, bootstrap, 0.0), terminated, truncated)
        for column, values in zip(self._about[:_IS_FIRST], columns, strict=True):
            column[rows] = values
        self._fresh = terminated | truncated
        ended = self._fresh[:, None]
        self._next_previous = self._next_previous.masked_fill(ended, 0.0)
        self._next_memory = self._next_memory.masked_fill(ended, 0.0)
        self._completed = self._used

    def fetch(self, value: torch.Tensor) -> None:
        """Finishes the rollout; `value` (n,) is that of each environment's current observation."""
        last = slice(self.size - self.num_envs, self.size)
        open_ended = torch.where(self._fresh, self._about[_BOOTSTRAP, last], value.float())
        self._about[_BOOTSTRAP, last] = open_ended
        reward, bootstrap, terminated, truncated, is_first = self._about.cpu().numpy()
        rows = slice(0, self.size)
        self.reward[rows], self.bootstrap[rows] = reward, bootstrap
        self.terminated[rows], self.truncated[rows] = terminated > 0.0, truncated > 0.0
        self.is_first[rows], self.is_complete[rows] = is_first > 0.0, True
        self.generation[rows] = self._generation
        self.env[rows] = torch.arange(self.num_envs).repeat(self.size // self.num_envs).numpy()
        self._next_is_first[:] = self._fresh.cpu().numpy()
        self._rows, self.num_fresh = torch.arange(self.size).numpy(), self.size

    def load_state_dict(self, tensors: dict[str, torch.Tensor], note: dict[str, Any]) -> None:
        """Continues from a `state_dict`, with new episodes in all environments.

        Raises:
            UserError: the state is of other environments or another policy.
        """
        self._forget()
        super().load_state_dict(tensors, note)
        self._in_flight[:], self._used = -1, 0
        self._next_is_first[:] = True
        self._forget()

    def _forget(self) -> None:
        """Makes the next action of every environment the first of an episode."""
        self._fresh = torch.ones_like(self._fresh)
        self._next_previous = torch.zeros_like(self._next_previous)
        self._next_memory = torch.zeros_like(self._next_memory)
