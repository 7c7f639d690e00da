"""Smallest form of a policy that acts the same: half precision, without value network."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from tpsrl.errors import UserError
from tpsrl.rl.envs.pictures import dtype_of, pictures_of
from tpsrl.rl.policy.actor_critic import CRITIC, ActorCritic
from tpsrl.rl.run import checkpoint as checkpoints
from tpsrl.rl.run.checkpoint import Checkpoint

_VALUE = ("value_", "critic.")  # prefixes of weights that no action depends on
_VALUE_SETTINGS = ("separate_value", "critic")
_MOST_DRAWN = 2**24  # maximum number of pixels of all rows; larger pictures have fewer rows


def halved(checkpoint: Checkpoint) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Returns the tensors and the note of a checkpoint's policy, reduced to what acting needs.

    They have the form of `checkpoints.policy_part`. All weights are float16, which
    `checkpoints.load_policy` converts to float32. A value network of its own is left out, and the
    remaining value head gives 0.

    Raises:
        UserError: the checkpoint holds no policy, or a weight is too large for half precision.
    """
    policy = checkpoints.load_policy(checkpoint)
    weights = policy.state_dict()
    if policy.settings.separate_value or policy.settings.critic:
        alone = dataclasses.replace(policy.settings, separate_value=False, critic=False)
        shown = {name: s for name, s in policy.spec.observations.items() if name != CRITIC}
        policy = ActorCritic(dataclasses.replace(policy.spec, observations=shown), alone)
        silent = {name: torch.zeros_like(t) for name, t in policy.state_dict().items()}
        acting = {name: t for name, t in weights.items() if not name.startswith(_VALUE)}
        policy.load_state_dict(silent | acting)
    tensors, note = checkpoints.policy_part(policy)
    small = {name: _half(tensor) for name, tensor in tensors.items()}
    for name, tensor in small.items():
        if not bool(torch.isfinite(tensor).all()):
            raise UserError(
                f"{checkpoint.field}: {checkpoint.path}: {name} does not fit into half precision"
            )
    return small, note


def mean(policies: Sequence[Checkpoint]) -> Checkpoint:
    """Returns the first checkpoint with the mean of the acting weights of all, as float32.

    The weights are rounded to half precision before, as those of shipped policies are.

    Raises:
        UserError: a checkpoint holds no policy, or one of another network than the first.
    """
    first, note = halved(policies[0])
    total = {name: tensor.float() for name, tensor in first.items()}
    for other in policies[1:]:
        tensors, _ = halved(other)
        if {k: t.shape for k, t in tensors.items()} != {k: t.shape for k, t in first.items()}:
            raise UserError(
                f"{other.field}: {other.path} has another network than {policies[0].path}; name a "
                "policy that was trained on from it, or from the same one"
            )
        total = {name: total[name] + tensor.float() for name, tensor in tensors.items()}
    means = {
        name: total[name] / len(policies) if tensor.is_floating_point() else tensor
        for name, tensor in first.items()
    }
    return dataclasses.replace(policies[0], tensors=means, note={**policies[0].note, **note})


def _half(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.half() if tensor.is_floating_point() else tensor


def is_half(tensors: Mapping[str, torch.Tensor]) -> bool:
    """Returns whether the tensors are in half precision, as from `halved`."""
    return not any(t.is_floating_point() and t.dtype != torch.float16 for t in tensors.values())


def difference(
    one: ActorCritic, other: ActorCritic, rows: int = 64, steps: int = 32, seed: int = 0
) -> float:
    """Returns the largest difference between mean actions of two policies, clipped to [-1, 1].

    Both policies receive the same `steps` of random observations in `rows` episodes, fewer if
    pictures have more than 512 x 512 pixels. Vectors are normal and pictures uniform; the previous
    action is that of `one`.
    """
    pictures = pictures_of(one.spec.observations)
    pixels = sum(math.prod(one.spec.observations[name]) for name in pictures) or 1
    rows = max(1, min(rows, _MOST_DRAWN // pixels))
    generator = torch.Generator().manual_seed(seed)
    memories = [one.initial_memory(rows), other.initial_memory(rows)]
    previous, largest = torch.zeros(rows, one.spec.action_size), 0.0
    with torch.inference_mode():
        for number in range(steps):
            first = torch.full((rows,), number == 0)
            shown = {
                name: _random(name, (rows, *shape), generator)
                for name, shape in one.spec.observations.items()
                if name != CRITIC
            }
            done = [
                policy.act(shown, previous, memory, first)
                for policy, memory in zip((one, other), memories, strict=True)
            ]
            means = [step.mean.clamp(-1.0, 1.0) for step in done]
            largest = max(largest, float((means[0] - means[1]).abs().max()))
            memories = [step.memory for step in done if step.memory is not None]
            previous = means[0]
    return largest


def _random(name: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    if dtype_of(name) is np.uint8:
        return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    draw = torch.randn if len(shape) == 2 else torch.rand
    return draw(shape, generator=generator)


def digest(policy: ActorCritic, deploy: Mapping[str, Any]) -> str:
    """Returns twelve hex digits of how a policy acts, the same before and after it is `halved`.

    Args:
        policy: weights count in half precision, those of the value do not count
        deploy: other settings that affect how the policy acts, as JSON types
    """
    entries = policy.settings.to_json().items()
    settings = {name: value for name, value in entries if name not in _VALUE_SETTINGS}
    found = hashlib.sha256(json.dumps([settings, dict(deploy)], sort_keys=True).encode())
    for name, tensor in sorted(policy.state_dict().items()):
        if not name.startswith(_VALUE):
            found.update(f"{name} {tuple(tensor.shape)}".encode())
            found.update(_half(tensor).contiguous().numpy().tobytes())
    return found.hexdigest()[:12]
