"""Files of shipped policies: conversion from checkpoints, writing with model cards, checks.

`SKILL.safetensors` is a checkpoint without the data that only training needs, with weights in half
precision and the card in its note; `SKILL.md` is the card as a page. Reading a file runs no code.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import tpsrl
from skills import registry
from skills.policies import learned, pretrained
from skills.policies.card import Card, markdown
from skills.policies.learned import Network
from skills.policies.rules import RULES
from tpsrl.errors import UserError, renamed
from tpsrl.rl.run import checkpoint as checkpoints
from tpsrl.rl.run import halving, warm_start
from tpsrl.rl.run.checkpoint import Checkpoint
from tpsrl.runtime import files
from tpsrl.world import action

MOST_BYTES = 8_000_000
_CARD = "card"  # key in the note
_BIAS = "policy.action_head.mean.bias"


@dataclasses.dataclass(frozen=True, slots=True)
class ShippedPolicy:
    """Contents of a shipped file: weights, note and card; `digest` as `Network.digest`."""

    tensors: Mapping[str, torch.Tensor]
    note: Mapping[str, Any]
    card: Card
    digest: str


def make(
    skill: str,
    path: str | os.PathLike[str],
    sample: bool | None = None,
    tolerance: float = 0.02,
    stop_shift: float = 0.0,
    rules: Mapping[str, float | None] = {},
    mean_with: Sequence[str] = (),
) -> ShippedPolicy:
    """Converts a checkpoint to half precision and checks that mean actions stay the same.

    Args:
        skill: name of the skill
        path: see `skills.policies.learned.find`; the card of an already shipped policy is kept
        sample: whether to sample actions; None for the checkpoint's setting
        tolerance: maximum change of a mean action, whose parts are in [-1, 1]
        stop_shift: amount to subtract from the mean of stop before squashing, so that the policy
            stops only when it is more certain
        rules: values of `skills.policies.rules.RULES`, 0 for none; the checkpoint's for those
            that are None or missing
        mean_with: further checkpoints, whose weights are averaged with those of `path`

    Raises:
        UserError: a checkpoint is missing, one of `mean_with` has other inputs or another network,
            the card is invalid, half precision changes mean actions by more than `tolerance`,
            `stop_shift` is given for a skill without stop, or a rule
            (`skills.policies.rules.RULES`) for a policy that lacks a sensor for it.
    """
    field = f"skills.{skill}"
    where, network = learned.find(skill, path), learned.load(skill, path)
    found = checkpoints.load(where, "policy", field)
    whole = _changed(found, network, mean_with, stop_shift)
    # The network is cached, so that a changed policy is another one.
    policy = network.policy if whole is found else checkpoints.load_policy(whole)
    tensors, note = halving.halved(whole)
    half = checkpoints.load_policy(Checkpoint(where, tensors, note, field))
    difference = halving.difference(policy, half)
    if not difference <= tolerance:
        raise UserError(
            f"tolerance: in half precision a mean action of {where} differs by {difference:.3g}, "
            f"more than {tolerance:g}"
        )
    given = {"sample": sample, **rules}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    deployment = dataclasses.replace(network.deployment, **changes)
    for name in deployment.rules:
        if sensor := deployment.missing(name):
            raise UserError(f"{name}: needs the sensor {sensor}; must be 0")
    deploy = deployment.to_json()
    facts: dict[str, Any] = {
        "skill": skill,
        "sensors": network.inputs.sensors,
        "privileged": network.inputs.privileged,
        "depth": network.inputs.depth,
        "cameras": dict(network.inputs.cameras),
        "delay": network.delay,
        "sample": deployment.sample,
        **{name: getattr(deployment, name) for name in RULES},
        "encoder": half.settings.encoder,
        "parameters": sum(weights.numel() for weights in half.parameters()),
        "difference": difference,
        "steps": network.steps,
        "version": tpsrl.__version__,
        "sight": half.settings.sight,
        "glimpse": half.settings.glimpse,
        "grip_rule": half.settings.grip_rule,
    }
    digest = halving.digest(policy, deploy)
    if whole.note.get(_CARD) is None:
        card = Card(**facts)
    else:
        card = _kept(_card(whole), facts, same=digest == network.digest)
    return ShippedPolicy(tensors, note | {"deploy": deploy, "steps": network.steps}, card, digest)


def _changed(
    whole: Checkpoint, network: Network, mean_with: Sequence[str], stop_shift: float
) -> Checkpoint:
    """Averages the weights of a checkpoint with others' and lowers its stop output, as in `make`.

    Returns `whole` itself if neither is wanted.
    """
    if mean_with:
        whole = halving.mean([whole, *(_further(path, network) for path in mean_with)])
    if stop_shift:
        if not network.mask[action.STOP]:
            raise UserError(f"stop_shift: {network.inputs.skill} has no stop action; must be 0")
        bias = whole.tensors[_BIAS].clone()
        bias[action.STOP] -= stop_shift
        whole = dataclasses.replace(whole, tensors=whole.tensors | {_BIAS: bias})
    return whole


def _further(path: str, first: Network) -> Checkpoint:
    """Loads a checkpoint whose weights are to be averaged with those of `first`.

    It can lack some sensors, whose weights are then 0.

    Raises:
        UserError: it is missing, or has another skill, other cameras or further sensors.
    """
    field, skill = "mean_with", first.inputs.skill
    with renamed(f"skills.{skill}", field):
        where, inputs = learned.find(skill, path, field), learned.load(skill, path).inputs
    found = checkpoints.load(where, "policy", field)
    if inputs == first.inputs:
        return found
    if dataclasses.replace(inputs, sensors=first.inputs.sensors) != first.inputs or (
        not first.inputs.extend(inputs)
    ):
        raise UserError(f"{field}: {where} has other inputs than agent")
    columns = {"state": first.inputs.places(inputs)}
    return warm_start.widened(found, columns, {"state": first.inputs.size})


def _card(checkpoint: Checkpoint) -> Card:
    """Returns the card in a checkpoint.

    Raises:
        UserError: the card is missing or invalid.
    """
    where = f"{checkpoint.field}: {checkpoint.path}: card"
    return Card.from_json(checkpoint.note.get(_CARD), where)


def _kept(earlier: Card, facts: dict[str, Any], same: bool) -> Card:
    """Updates an earlier card with new facts, without success rates if the policy changed."""
    # A policy already in half precision does not change again; the first difference counts.
    facts = facts | {"difference": max(earlier.difference, facts["difference"])}
    if not same:
        facts |= {"success": None, "blind": ()}
    return dataclasses.replace(earlier, **facts)


def write(policy: ShippedPolicy, folder: Path, teacher: bool = False, replace: bool = True) -> Path:
    """Writes file and card to a folder and returns the file's path.

    Args:
        policy: the policy
        folder: destination
        teacher: whether to use the file names of the skill's teacher
        replace: whether to overwrite another policy

    Raises:
        UserError: the file would be too large, the folder cannot be written, or another policy
            exists and `replace` is False; the policy is then not written.
    """
    name = policy.card.skill
    path, beside = folder / pretrained.file_name(name, teacher), pretrained.card_name(name, teacher)
    files.check_replaceable(folder, (path.name, beside))
    if not replace:
        check_same(path, name, policy.digest)
    # Created before the file is written, so that an invalid card leaves no file.
    page = markdown(Card.from_json(policy.card.to_json()))
    note = {**policy.note, _CARD: policy.card.to_json()}
    try:
        with files.atomic(path, durable=True) as temporary:
            checkpoints.save(temporary, policy.tensors, note)
            check(temporary, name, path.name, "agent")
    except OSError as error:
        raise UserError(f"out: cannot write '{path}' ({error.strerror})") from None
    files.write_text(folder / beside, page)
    return path


def check_same(path: Path, skill: str, digest: str) -> None:
    """Checks that a file, if it exists, has the policy of a digest; its card may differ.

    Raises:
        UserError: the file has another policy or none; the message says how to replace it.
    """
    if not path.is_file():
        return
    try:
        there = learned.load(skill, path).digest
    except UserError:
        there = "no policy of this version"
    if there != digest:
        raise UserError(
            f"out: {path} contains another policy ({there}, this one is {digest}); choose another "
            "out, or set replace=true"
        )


def check(path: Path, skill: str, name: str = "", field: str = "checkpoint") -> Card:
    """Checks that a file is a valid shipped policy of a skill and returns its card.

    Args:
        path: path of the file
        skill: name of the skill
        name: name of the file in error messages; "" for its path
        field: setting that named the file, for error messages

    Raises:
        UserError: the file is not valid; the message gives the reason.
    """
    called = name or str(path)
    try:
        registry.get(skill)
        check_size(path.stat().st_size, called, field)
        found, network = checkpoints.load(path, "policy", field), Network(path, field)
        inputs = network.inputs
        if inputs.skill != skill:
            raise UserError(f"{field}: {called}: is a policy for {inputs.skill}, not for {skill}")
        if not halving.is_half(found.tensors):
            raise UserError(f"{field}: {called}: its weights are not in half precision")
        card = _card(found)
        shown = card.skill, card.sensors, card.depth, tuple(card.cameras.items())
        seen = skill, inputs.sensors, inputs.depth, inputs.cameras
        stated, acts = (
            [getattr(facts, name) for name in ("delay", "sample", *RULES)]
            for facts in (card, network.deployment)
        )
        if (shown, stated) != (seen, acts):
            raise UserError(f"{field}: {called}: its card describes another policy")
        return card
    except UserError as error:
        raise UserError(str(error).replace(str(path), called)) from None
    except OSError as error:
        raise UserError(f"{field}: {called}: cannot be read ({error.strerror})") from None


def check_size(size: int, name: str, field: str = "checkpoint") -> None:
    """Checks the size of a file.

    Args:
        size: size in bytes
        name: name of the file, for the error message
        field: setting that named the file, for the error message

    Raises:
        UserError: the file is larger than `MOST_BYTES`.
    """
    if size > MOST_BYTES:
        most = f"{MOST_BYTES / 1e6:.0f} MB"
        raise UserError(f"{field}: {name}: {size / 1e6:.1f} MB, more than {most}")
