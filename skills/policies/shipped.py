"""Files of shipped policies: made of checkpoints, written with their cards, and checked.

`SKILL.safetensors` is a checkpoint without what only training needs: weights in half precision, and
in its note the card's facts; `SKILL.md` is the card as a page. Reading one runs no code.
"""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import tpsrl
from skills import registry
from skills.policies import learned, pretrained
from skills.policies.card import Card, markdown
from skills.policies.learned import Network
from tpsrl.errors import UserError
from tpsrl.rl.run import checkpoint as checkpoints
from tpsrl.rl.run import halving
from tpsrl.rl.run.checkpoint import Checkpoint
from tpsrl.runtime import files
from tpsrl.world import action

MOST_BYTES = 8_000_000
_CARD = "card"  # in the note
_BIAS = "policy.action_head.mean.bias"


@dataclasses.dataclass(frozen=True, slots=True)
class ShippedPolicy:
    """What a shipped file is made of; `digest` is that of `Network.digest`."""

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
) -> ShippedPolicy:
    """Halves a checkpoint, and makes sure that it still acts the same.

    Args:
        skill: that it acts for
        path: as `skills.policies.learned.find` takes it; the facts of one that is shipped already
            are kept
        sample: whether it draws its actions; None: as before
        tolerance: by how much a mean action, of parts within [-1, 1], may differ at most
        stop_shift: what is subtracted from stop before it is squashed, so that the policy stops
            only when it is more certain

    Raises:
        UserError: there is no such checkpoint, its card is none, it acts otherwise in half
            precision, or it cannot stop.
    """
    field = f"skills.{skill}"
    where, network = learned.find(skill, path), learned.load(skill, path)
    whole = checkpoints.load(where, "policy", field)
    policy = network.policy
    if stop_shift:
        if not policy.mask[action.STOP]:
            raise UserError(f"stop_shift: {skill} has no stop action; must be 0")
        bias = whole.tensors[_BIAS].clone()
        bias[action.STOP] -= stop_shift
        whole = dataclasses.replace(whole, tensors=whole.tensors | {_BIAS: bias})
        policy = checkpoints.load_policy(whole)  # the network is shared with whoever loads it next
    tensors, note = halving.halved(whole)
    half = checkpoints.load_policy(Checkpoint(where, tensors, note, field))
    difference = halving.difference(policy, half)
    if not difference <= tolerance:
        raise UserError(
            f"tolerance: in half precision a mean action of {where} differs by {difference:.3g}, "
            f"more than {tolerance:g}"
        )
    deploy = network.deploy | ({} if sample is None else {"sample": sample})
    facts = {
        "skill": skill,
        "sensors": network.inputs.sensors,
        "privileged": network.inputs.privileged,
        "depth": network.inputs.depth,
        "cameras": dict(network.inputs.cameras),
        "delay": network.delay,
        "sample": deploy["sample"],
        "encoder": half.settings.encoder,
        "parameters": sum(weights.numel() for weights in half.parameters()),
        "difference": difference,
        "steps": network.steps,
        "version": tpsrl.__version__,
        "sight": half.settings.sight,
    }
    digest = halving.digest(policy, deploy)
    if whole.note.get(_CARD) is None:
        card = Card(**facts)
    else:
        card = _kept(_card(whole), facts, same=digest == network.digest)
    return ShippedPolicy(tensors, note | {"deploy": deploy, "steps": network.steps}, card, digest)


def _card(checkpoint: Checkpoint) -> Card:
    """The card in a checkpoint.

    Raises:
        UserError: there is none that is valid.
    """
    where = f"{checkpoint.field}: {checkpoint.path}: card"
    return Card.from_json(checkpoint.note.get(_CARD), where)


def _kept(earlier: Card, facts: dict[str, Any], same: bool) -> Card:
    """An earlier card with the facts of now; a policy that acts otherwise has not been measured."""
    # What rounding did, it did the first time.
    facts = facts | {"difference": max(earlier.difference, facts["difference"])}
    if not same:
        facts |= {"success": None, "blind": ()}
    return dataclasses.replace(earlier, **facts)


def write(policy: ShippedPolicy, folder: Path, teacher: bool = False, replace: bool = True) -> Path:
    """Writes file and card into a folder, and returns the file's path.

    Args:
        policy: what to write
        folder: where
        teacher: under the names of the skill's teacher
        replace: another policy that is there; False: refuse

    Raises:
        UserError: it is too large, the folder cannot be written, or another policy is there; then
            nothing is written.
    """
    name = policy.card.skill
    path, beside = folder / pretrained.file_name(name, teacher), pretrained.card_name(name, teacher)
    files.check_replaceable(folder, (path.name, beside))
    if not replace:
        check_same(path, name, policy.digest)
    # The file is not written without its card.
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
    """Refuses to replace a file of another policy, or of none; one of the same has another card.

    Raises:
        UserError: names the file, and how to replace it.
    """
    if not path.is_file():
        return
    try:
        there = learned.load(skill, path).digest
    except UserError:
        there = "no policy of this version"
    if there != digest:
        raise UserError(
            f"out: {path} holds another policy ({there}, this one is {digest}); choose another "
            "out, or replace=true"
        )


def check(path: Path, skill: str, name: str = "", field: str = "checkpoint") -> Card:
    """The card of a file that is a shipped policy of a skill.

    Args:
        path: of the file
        skill: that it is to act for
        name: what messages call the file, in the place of its path
        field: where it was named

    Raises:
        UserError: it is not; says what is wrong.
    """
    called = name or str(path)
    try:
        registry.get(skill)
        check_size(path.stat().st_size, called, field)
        found, network = checkpoints.load(path, "policy", field), Network(path, field)
        inputs = network.inputs
        if inputs.skill != skill:
            raise UserError(f"{field}: {called}: it acts for {inputs.skill}, not for {skill}")
        if not halving.is_half(found.tensors):
            raise UserError(f"{field}: {called}: its weights are not in half precision")
        card = _card(found)
        told = (card.skill, card.sensors, card.depth, card.delay, card.sample)
        shown = tuple(card.cameras.items())
        seen = (skill, inputs.sensors, inputs.depth, network.delay, network.sample)
        if (*told, shown) != (*seen, inputs.cameras):
            raise UserError(f"{field}: {called}: its card is of another policy")
        return card
    except UserError as error:
        raise UserError(str(error).replace(str(path), called)) from None
    except OSError as error:
        raise UserError(f"{field}: {called}: cannot be read ({error.strerror})") from None


def check_size(size: int, name: str, field: str = "checkpoint") -> None:
    """Refuses a file of too many bytes; `field` is where it was named.

    Raises:
        UserError: it is too large; names it.
    """
    if size > MOST_BYTES:
        most = f"{MOST_BYTES / 1e6:.0f} MB"
        raise UserError(f"{field}: {name}: {size / 1e6:.1f} MB, more than {most}")
