"""Warm start of a policy that observes more images than the checkpoint with its first weights.

The new images are encoded by towers of their own (`tpsrl.rl.policy.towers`), and a new glimpse
(`tpsrl.rl.policy.glimpse`) by an encoder of its own, which begin with new weights. The layers that
read them begin with zeros, so that the policy acts as the checkpoint's.
"""

from collections.abc import Sequence

import torch

from tpsrl.errors import UserError
from tpsrl.rl.envs.pictures import pictures_of
from tpsrl.rl.policy import glimpse
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.policy.channel_norm import FIXED
from tpsrl.rl.policy.towers import Tower, Towers
from tpsrl.rl.run import checkpoint as checkpoints
from tpsrl.rl.run.checkpoint import Checkpoint

_ENCODER, _TOWERS = "trunk.encoder.", "trunk.encoder.towers."
_GLIMPSE = "trunk.glimpse_encoder."
# Layers that read the features of a trunk, with and without an LSTM.
_READERS = ("trunk.recurrent.lstm.weight_ih_l0",)
_READERS_WITHOUT_LSTM = ("action_head.mean.weight", "action_head.std.weight", "value_head.weight")


def pictures(policy: ActorCritic, checkpoint: Checkpoint) -> tuple[str, ...]:
    """Returns the images of a policy that a checkpoint lacks; none if the checkpoint has none."""
    before = pictures_of(checkpoints.policy_spec(checkpoint).observations)
    return tuple(n for n in pictures_of(policy.spec.observations) if before and n not in before)


def weights(policy: ActorCritic, checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """Returns a checkpoint's weights by name, with new towers for the images that it lacks.

    Raises:
        UserError: a new image has the size of one of the checkpoint's.
    """
    theirs = checkpoint.part("policy")
    if not pictures(policy, checkpoint):
        return theirs
    encoder = policy.trunk.encoder
    assert isinstance(encoder, Towers)
    sizes = _sizes(policy, checkpoint)
    width = encoder.size // len(encoder.towers)  # of each tower
    columns: list[int] = []  # column of the checkpoint's features for each of the policy's, or -1
    found = {name: tensor for name, tensor in theirs.items() if _ENCODER not in name}
    for number, tower in enumerate(encoder.towers):
        assert isinstance(tower, Tower)
        size = policy.spec.observations[tower.names[0]][:2]
        old = sizes.index(size) if size in sizes else None
        columns += [-1] * width if old is None else range(old * width, (old + 1) * width)
        for prefix in ("", "value_") if policy.value_trunk is not None else ("",):
            found |= _tower(policy, theirs, prefix, number, old)
    readers = _READERS if policy.settings.lstm_layers else _READERS_WITHOUT_LSTM
    for name in (*readers, *(f"value_{reader}" for reader in readers)):
        if name in found and not (name == "value_head.weight" and policy.critic is not None):
            found[name] = _spread(found[name], columns, len(sizes) * width)
    return found


def has_new_glimpse(policy: ActorCritic, checkpoint: Checkpoint) -> bool:
    """Returns whether a policy has a glimpse that a checkpoint lacks."""
    return bool(policy.settings.glimpse and not checkpoints.policy_settings(checkpoint).glimpse)


def add_glimpse(policy: ActorCritic, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns weights with those of a policy's new glimpse, which has no effect at first."""
    own = policy.state_dict()
    found = dict(weights)
    for prefix in ("", "value_"):
        if any(name.startswith(f"{prefix}trunk.") for name in weights):
            at = f"{prefix}{_GLIMPSE}"
            found |= {name: tensor for name, tensor in own.items() if name.startswith(at)}
    readers = _READERS if policy.settings.lstm_layers else _READERS_WITHOUT_LSTM
    for name in (*readers, *(f"value_{reader}" for reader in readers)):
        if name in found and not (name == "value_head.weight" and policy.critic is not None):
            old = found[name]
            found[name] = torch.cat((old, old.new_zeros(len(old), glimpse.SIZE)), dim=1)
    return found


def _sizes(policy: ActorCritic, checkpoint: Checkpoint) -> list[tuple[int, ...]]:
    """Returns the image sizes (height, width) of a checkpoint's towers, in their order.

    Raises:
        UserError: a new image of the policy has one of these sizes.
    """
    seen = checkpoints.policy_spec(checkpoint).observations
    sizes = list(dict.fromkeys(seen[name][:2] for name in pictures_of(seen)))
    for name in pictures(policy, checkpoint):
        if (size := policy.spec.observations[name][:2]) in sizes:
            raise UserError(
                f"cameras: {name} must have another size than {size[0]} x {size[1]}, which "
                f"{checkpoint.path} already uses"
            )
    return sizes


def _tower(
    policy: ActorCritic, theirs: dict[str, torch.Tensor], prefix: str, number: int, old: int | None
) -> dict[str, torch.Tensor]:
    """Returns the weights of tower `number`: those of the checkpoint's tower `old`, or new ones.

    `prefix` is that of the trunk: "" or "value_".
    """
    at = f"{prefix}{_TOWERS}{number}."
    found = _part(policy.state_dict(), at)
    if old is not None and _part(theirs, f"{prefix}{_TOWERS}"):
        found |= _part(theirs, f"{prefix}{_TOWERS}{old}.")
    elif old is not None:
        found |= _without_norm(theirs, f"{prefix}{_ENCODER}", found["norm.pictures"])
    return {at + name: tensor for name, tensor in found.items()}


def _part(weights: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {n.removeprefix(prefix): t for n, t in weights.items() if n.startswith(prefix)}


def _without_norm(
    weights: dict[str, torch.Tensor], encoder: str, count: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Returns a tower's weights from an encoder without towers, which does not normalise.

    Mean 0 and variance 1 stay, since they count as those of very many images.
    """
    taken = {f"encoder.{name}": tensor for name, tensor in _part(weights, encoder).items()}
    return taken | {"norm.pictures": torch.full_like(count, FIXED)}


def _spread(weight: torch.Tensor, columns: Sequence[int], size: int) -> torch.Tensor:
    """Returns a layer (m, size + k) with its first `size` columns spread out: (m, C + k).

    `columns` has the former column of each of the C new ones; -1 is a column of zeros.
    """
    places = torch.tensor(columns)
    wide = weight.new_zeros(len(weight), len(columns) + weight.shape[1] - size)
    wide[:, : len(columns)][:, places >= 0] = weight[:, places[places >= 0]]
    wide[:, len(columns) :] = weight[:, size:]
    return wide
