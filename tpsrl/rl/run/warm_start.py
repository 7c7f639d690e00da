"""Warm start: a new training's policy takes weights from a checkpoint, to be fine-tuned.

The network's architecture is that of the checkpoint. The standard deviation is reset to the
training's own `initial_std` in every part of the action, within its own bounds, whatever wrote the
checkpoint: a clone has not learned any, and the final one of a training may be too small to explore
anything new. A value network that the checkpoint lacks begins as a copy of the acting network, with
a new layer on top; one on the true state (`critic`) begins with new weights.

A policy may observe more images than the checkpoint's, and have a glimpse
(`tpsrl.rl.run.new_towers`).

An `EncoderOnly` gives only its camera encoder, to a policy that may be for another skill with other
sensors and another memory: DD-PPO's transfer (section 6).
"""

import dataclasses
import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tpsrl.errors import UserError
from tpsrl.rl.envs.pictures import DEPTH, pictures_of
from tpsrl.rl.envs.vec_env import Json
from tpsrl.rl.policy import timm_encoder
from tpsrl.rl.policy.actor_critic import CRITIC, MAGNIFIED, ActorCritic
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.rl.policy.timm_encoder import TimmEncoder
from tpsrl.rl.policy.towers import Tower, Towers
from tpsrl.rl.run import checkpoint as checkpoints
from tpsrl.rl.run import new_towers
from tpsrl.rl.run.checkpoint import Checkpoint
from tpsrl.runtime import files

# Settings taken from the training; the others are taken from the checkpoint.
_OWN = (
    "initial_std",
    "min_std",
    "max_std",
    "dtype",
    "frozen_encoder",
    "switches",
    "switch_std",
    "grip_rule",
)
_OF_ENCODER = ("encoder", "encoder_width", "visual_width")  # settings that shape an encoder
_TRUNK, _VALUE_TRUNK, _VALUE_HEAD = "trunk.", "value_trunk.", "value_head."
_CRITIC = ("critic.", "moments.critic.")
_LOG_STD, _STD = "action_head.log_std", "action_head.std."
_NAMED = 16  # hexadecimal digits of a digest
_BLIND = "state"  # the encoder without camera
_ENCODER = "trunk.encoder."
# First layers of an observation.
_FIRST_LAYERS = {
    "state": ("trunk.embed.0.weight", "value_trunk.embed.0.weight"),
    CRITIC: ("critic.0.weight",),
}


class EncoderOnly(Checkpoint):
    """A checkpoint of which only the encoder's weights are taken."""

    __slots__ = ()


class EncoderFile(Checkpoint):
    """A file with pretrained weights of a timm encoder; `path` is the only entry."""

    __slots__ = ()


def find(path: str, field: str = "init") -> Path:
    """Returns the checkpoint of a path: the path itself, or the best one of a training's folder.

    `field` is the setting that gave the path, for messages.

    Raises:
        UserError: there is none.
    """
    where = Path(os.path.realpath(files.user_path(path, field)))
    if where.is_dir():
        where = where / checkpoints.FOLDER / checkpoints.BEST
    if not where.is_file():
        raise UserError(f"{field}: no checkpoint {where}")
    return where


def encoder_of(own: PolicySettings, checkpoint: Checkpoint) -> PolicySettings:
    """Returns the network settings for a training that takes a checkpoint's encoder.

    Raises:
        UserError: the checkpoint has no encoder or does not describe it, or it is not known.
    """
    theirs = checkpoints.policy_settings(checkpoint)
    if theirs.encoder == _BLIND:
        raise UserError(f"encoder: {checkpoint.path} has no encoder, since it has no camera")
    return dataclasses.replace(own, **{name: getattr(theirs, name) for name in _OF_ENCODER})


def network(own: PolicySettings, checkpoint: Checkpoint) -> PolicySettings:
    """Returns the network settings for a training that begins with a checkpoint.

    Raises:
        UserError: the checkpoint does not describe its network, or its encoder is not known.
    """
    theirs = checkpoints.policy_settings(checkpoint)
    kept: dict[str, Any] = {name: getattr(own, name) for name in _OWN}
    critic = own.critic or theirs.critic
    separate = not critic and (own.separate_value or theirs.separate_value)
    kept["glimpse"] = theirs.glimpse or own.glimpse
    return dataclasses.replace(theirs, separate_value=separate, critic=critic, **kept)


def origin(checkpoint: Checkpoint) -> Json:
    """Returns a note of where weights came from: the file's name, and a digest of its content.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        digest = hashlib.sha256(checkpoint.path.read_bytes()).hexdigest()[:_NAMED]
    except OSError as error:
        raise UserError(f"init: cannot read {checkpoint.path} ({error.strerror})") from None
    only_encoder = isinstance(checkpoint, EncoderOnly | EncoderFile)
    part = {"part": "encoder"} if only_encoder else {}
    return {"file": checkpoint.path.name, "digest": digest, **part}


def take_over(policy: ActorCritic, checkpoint: Checkpoint) -> None:
    """Loads a checkpoint's weights into a new policy, whose settings are those of `network`.

    From an `EncoderOnly` only the encoder is loaded, into a policy with the settings of
    `encoder_of`; from an `EncoderFile`, the timm encoders.

    Raises:
        UserError: it was made for other observations or actions (names them), is of another
            network, or a weight is not finite.
    """
    if isinstance(checkpoint, EncoderFile):
        _take_pretrained(policy, checkpoint.path)
        return
    if isinstance(checkpoint, EncoderOnly):
        _take_encoder(policy, checkpoint)
        return
    _check_spec(policy, checkpoint)
    own = policy.state_dict()
    weights = new_towers.weights(policy, checkpoint)
    if new_towers.has_new_glimpse(policy, checkpoint):
        weights = new_towers.add_glimpse(policy, weights)
    anew = [name for name in own if name.startswith((_LOG_STD, _STD))]
    if policy.value_trunk is not None and not checkpoint.optional(f"policy.{_VALUE_TRUNK[:-1]}"):
        trunk = [name for name in weights if name.startswith(_TRUNK)]
        weights |= {f"value_{name}": weights[name] for name in trunk}
        anew += [name for name in own if name.startswith(_VALUE_HEAD)]
    if policy.critic is not None and not _has_critic(own, weights):
        anew += [name for name in own if name.startswith((*_CRITIC, _VALUE_HEAD))]
        weights = {k: v for k, v in weights.items() if not k.startswith(_VALUE_TRUNK)}
    weights |= {name: own[name] for name in anew}
    checkpoints.put_weights(policy, weights, checkpoint.path, checkpoint.field)
    _set_std(policy)


def widened(
    checkpoint: Checkpoint, columns: Mapping[str, np.ndarray], sizes: Mapping[str, int]
) -> Checkpoint:
    """Returns the same policy with a wider observation, whose new numbers have no effect at first.

    Args:
        checkpoint: checkpoint with the narrower observation
        columns: for "state", and for the critic's true state if there is one, the column in the
            wider observation of each number of the narrower one
        sizes: lengths of the wider observations, by the same names

    Raises:
        UserError: the checkpoint does not describe its observations, normalises them, or has
            weights of another size.
    """
    settings = checkpoints.policy_settings(checkpoint)
    if settings.normalise_observations:
        raise checkpoint.refused("normalises its observations; train with the same sensors")
    copies = 1 + len(MAGNIFIED) if settings.magnify_state else 1
    tensors, shapes = dict(checkpoint.tensors), {}
    for name, places in columns.items():
        wide = sizes[name]
        kept = np.concatenate([copy * wide + places for copy in range(copies)])
        for layer in _FIRST_LAYERS[name]:
            if (narrow := tensors.get(f"policy.{layer}")) is None:
                continue
            others = narrow.shape[1] - len(kept)  # the previous action, behind the state
            if others < 0:
                raise checkpoint.refused(f"has a {layer} of {narrow.shape[1]} columns")
            weight = narrow.new_zeros(len(narrow), copies * wide + others)
            weight[:, kept] = narrow[:, : len(kept)]
            weight[:, copies * wide :] = narrow[:, len(kept) :]
            tensors[f"policy.{layer}"] = weight
        shapes[name] = [wide]
    spec = checkpoint.get("spec", dict)
    spec = spec | {"observations": spec["observations"] | shapes}
    note = checkpoint.note | {"spec": spec}
    return dataclasses.replace(checkpoint, tensors=tensors, note=note)


def _take_pretrained(policy: ActorCritic, path: Path) -> None:
    """Loads pretrained weights into each tower of a policy with a timm encoder."""
    for trunk in filter(None, (policy.trunk, policy.value_trunk)):
        assert isinstance(trunk.encoder, Towers)
        for tower in trunk.encoder.towers:
            assert isinstance(tower, Tower) and isinstance(tower.encoder, TimmEncoder)
            timm_encoder.load_weights(tower.encoder, path)
            tower.expect(*timm_encoder.statistics(tower.encoder))


def _take_encoder(policy: ActorCritic, checkpoint: Checkpoint) -> None:
    """Replaces every encoder of a policy by that of a checkpoint."""
    settings = encoder_of(policy.settings, checkpoint)
    for name in _OF_ENCODER:
        theirs, ours = getattr(settings, name), getattr(policy.settings, name)
        if theirs != ours:
            raise UserError(f"encoder: {name} is {theirs} in {checkpoint.path}, {ours} here")
    seen, shown = checkpoints.policy_spec(checkpoint).observations, policy.spec.observations
    for picture in pictures_of(seen | shown):
        pictures, own = seen.get(picture), shown.get(picture)
        if pictures != own:
            raise UserError(
                f"encoder: pictures are {_shape(pictures)} in {checkpoint.path}, {_shape(own)} here"
            )
    weights = checkpoint.part("policy")
    taken = {name: t for name, t in weights.items() if name.startswith(_ENCODER)}
    if policy.value_trunk is not None:
        taken |= {f"value_{name}": tensor for name, tensor in taken.items()}
    whole = {n: t for n, t in policy.state_dict().items() if _ENCODER not in n}
    checkpoints.put_weights(policy, whole | taken, checkpoint.path, checkpoint.field)


def _has_critic(own: dict[str, torch.Tensor], weights: dict[str, torch.Tensor]) -> bool:
    """Returns whether there are weights for a value of the true state, of the same shapes."""
    names = [name for name in own if name.startswith(_CRITIC)]
    return all(name in weights and weights[name].shape == own[name].shape for name in names)


def _check_spec(policy: ActorCritic, checkpoint: Checkpoint) -> None:
    """Checks that a checkpoint has the same observations and action mask as a policy."""
    spec, own = checkpoints.policy_spec(checkpoint), policy.spec
    new = set(new_towers.pictures(policy, checkpoint))
    for name in sorted((spec.observations.keys() | own.observations.keys()) - {CRITIC} - new):
        theirs, ours = spec.observations.get(name), own.observations.get(name)
        if name == DEPTH and theirs and new_towers.has_new_glimpse(policy, checkpoint):
            theirs = tuple(2 * side for side in theirs)  # see `tpsrl.rl.policy.glimpse`
        if theirs != ours:
            raise UserError(
                f"init: observation {name} is {_shape(theirs)} in {checkpoint.path}, "
                f"{_shape(ours)} here"
            )
    if spec.mask != own.mask:
        raise UserError(
            f"init: the action mask has {_parts(spec.mask)} in {checkpoint.path}, "
            f"{_parts(own.mask)} here"
        )


def _set_std(policy: ActorCritic) -> None:
    """Sets the initial standard deviation in every part of the action."""
    head = policy.action_head
    log_std = math.log(policy.settings.initial_std)
    with torch.no_grad():
        if head.log_std is not None:
            head.log_std.fill_(log_std)
        else:
            head.std.weight.zero_()
            head.std.bias.fill_(log_std)


def _shape(shape: Any) -> str:
    return "missing" if shape is None else " x ".join(map(str, shape))


def _parts(mask: Sequence[bool]) -> str:
    """Lists the numbers of the parts in a mask."""
    used = ", ".join(str(part) for part, on in enumerate(mask) if on)
    return f"parts {used} of {len(mask)}"
