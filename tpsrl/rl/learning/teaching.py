"""Teachers: policies of the true state that label the states of a student.

A teacher without memory is a function of the state. It can therefore label every state that a
student reaches, at the cost of a small network (DAgger: Ross, Gordon and Bagnell, AISTATS 2011).
Errors are weighted by the teacher's precision in each action dimension, as in DextrAH-G (Lum et al.
2024).
"""

import dataclasses
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from tpsrl.errors import UserError
from tpsrl.rl.envs.pictures import pictures_of
from tpsrl.rl.policy import gaussian
from tpsrl.rl.policy.actor_critic import CRITIC, ActorCritic, PolicyStep, TensorObservation


@dataclasses.dataclass(frozen=True, slots=True)
class Label:
    """A teacher's action distribution in n states: mean (n, A) and standard deviation (n, A)."""

    mean: torch.Tensor
    std: torch.Tensor


class Teacher:
    """Labels states with the actions of a policy without memory.

    Args:
        policy: policy that acts on the true state alone
        columns: columns of the policy's state in the observation `CRITIC`
        switches: action dimensions of which only the sign matters

    Raises:
        UserError: the policy has a memory, a camera, or its previous action as an input.
    """

    def __init__(
        self, policy: ActorCritic, columns: Sequence[int], switches: Sequence[int] = ()
    ) -> None:
        if policy.memory_size or pictures_of(policy.spec.observations):
            raise UserError(
                "teacher: must act on the true state alone, but has a camera or a memory"
            )
        if policy.settings.previous_action:
            raise UserError("teacher: must not have its previous action as an input")
        self.policy = policy.eval().requires_grad_(False)
        self._columns = torch.as_tensor(columns, dtype=torch.int64)
        self._switches = list(switches)

    def to(self, device: torch.device) -> "Teacher":
        """Moves the teacher to a device; returns itself."""
        self.policy.to(device)
        self._columns = self._columns.to(device)
        return self

    def label(self, observation: TensorObservation) -> Label:
        """Returns the teacher's labels for a student's observations (n, ...)."""
        state = observation[CRITIC].index_select(1, self._columns)
        count = len(state)
        previous = torch.zeros(count, self.policy.spec.action_size, device=state.device)
        first = torch.ones(count, dtype=torch.bool, device=state.device)
        with torch.no_grad():
            step = self.policy.act(
                {"state": state}, previous, self.policy.initial_memory(count), first
            )
        return Label(step.mean.clamp(-1.0, 1.0), step.std)

    def distance(
        self, mean: torch.Tensor, label: Label, mask: torch.Tensor, switch_weight: float
    ) -> torch.Tensor:
        """Returns the mean distance () of means (n, A) from the labels of the same states.

        The errors of continuous dimensions are in the teacher's standard deviations, squared below
        one and linear above. Switches, which are on where the label is at least 0, count by the
        cross entropy of the probability (1 + mean) / 2.
        """
        turned = torch.zeros_like(mask)
        turned[self._switches] = True
        amounts, turned = mask & ~turned, mask & turned
        off = (mean - label.mean)[:, amounts] / label.std[:, amounts]
        total = functional.smooth_l1_loss(off, torch.zeros_like(off), beta=1.0)
        if bool(turned.any()):
            on = label.mean[:, turned] >= 0.0
            surprise = gaussian.switch_surprise(mean[:, turned], on)
            total = total + switch_weight * surprise.mean()
        return total


class MixedActor(nn.Module):
    """A student that collects with its teacher's help: its mean action is mixed with the teacher's.

    The teacher's share keeps the student near the teacher's states early in training.

    Args:
        student: the student, which provides value and memory
        teacher: its teacher
        share: weight of the teacher in the mean of the action, in [0, 1]
    """

    share: torch.Tensor  # ()

    def __init__(self, student: ActorCritic, teacher: Teacher, share: float) -> None:
        super().__init__()
        self.student, self._teacher = student, teacher
        self.register_buffer("share", torch.tensor(share, device=student.mask.device))

    @property
    def mask(self) -> torch.Tensor:
        """See `tpsrl.rl.policy.actor_critic.ActorCritic`."""
        return self.student.mask

    def act(
        self,
        observation: TensorObservation,
        previous_action: torch.Tensor,
        memory: torch.Tensor,
        is_first: torch.Tensor,
    ) -> PolicyStep:
        """See `tpsrl.rl.policy.actor_critic.ActorCritic.act`."""
        step = self.student.act(observation, previous_action, memory, is_first)
        label = self._teacher.label(observation).mean
        mean = torch.lerp(step.mean, label, self.share)
        return dataclasses.replace(step, mean=torch.where(self.mask, mean, 0.0))

    def log_prob(
        self,
        mean: torch.Tensor,
        std: torch.Tensor,
        action: torch.Tensor,
        noise: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See `tpsrl.rl.policy.actor_critic.ActorCritic`."""
        return self.student.log_prob(mean, std, action, noise)
