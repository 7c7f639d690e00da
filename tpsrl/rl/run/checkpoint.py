"""Checkpoint files: tensors as safetensors, all else as JSON in the same file's header.

Reading one cannot run code, unlike a pickle. A file is written under another name and renamed, so
that one that exists is whole, whenever the writer was killed.

The note says which version of tpsrl wrote it. Format 2 is the present one; a policy of format 1 can
still act, but no training goes on from it.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tpsrl
from tpsrl import files
from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.policy import encoder_registry as encoders
from tpsrl.rl.policy import size
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.policy.settings import PolicySettings

FORMAT = 2
_READABLE = (1, FORMAT)
_WRITER_OF_1 = "0.1"  # which did not say so itself
# In the folder of a training.
FOLDER, LATEST, BEST = "checkpoints", "latest.safetensors", "best.safetensors"
_KEY = "tpsrl"  # of the header's metadata
# Entries of the note by which a policy is made, and acted by.
_ACTING = ("deploy", "steps", "spec", "policy", "encoder_module", "card")


@dataclasses.dataclass(frozen=True, slots=True)
class Checkpoint:
    """Tensors by dotted name, and a note of JSON types."""

    path: Path
    tensors: dict[str, torch.Tensor]
    note: dict[str, Any]

    @property
    def version(self) -> str:
        """The version of tpsrl that wrote it."""
        return str(self.note.get("version", _WRITER_OF_1))

    def check_resumable(self) -> None:
        """Refuses a checkpoint that a policy can act by, but no training can go on from.

        Raises:
            UserError: it is of an earlier format; names the version that wrote it.
        """
        if self.note["format"] != FORMAT:
            raise UserError(
                f"resume: {self.path} is of format {self.note['format']}, as tpsrl {self.version} "
                f"wrote them; a policy can act by it, but only format {FORMAT} can be resumed"
            )

    @property
    def steps(self) -> int:
        """How many the policy has learned from; 0 where the note does not say.

        Raises:
            UserError: the note says something else.
        """
        value = self.note.get("steps", 0)
        if type(value) is not int or value < 0:
            raise UserError(f"checkpoint: {self.path} has no valid 'steps'")
        return value

    def part(self, name: str) -> dict[str, torch.Tensor]:
        """The tensors under `name.`, without it.

        Raises:
            UserError: there are none.
        """
        found = self.optional(name)
        if not found:
            raise UserError(f"checkpoint: {self.path} has no {name}")
        return found

    def optional(self, name: str) -> dict[str, torch.Tensor]:
        """As `part`; {} where there are none."""
        prefix = f"{name}."
        tensors = self.tensors.items()
        return {key.removeprefix(prefix): t for key, t in tensors if key.startswith(prefix)}

    def get(self, name: str, kind: type) -> Any:
        """An entry of the note.

        Raises:
            UserError: it is missing or of another type.
        """
        value = self.note.get(name)
        if not isinstance(value, kind):
            raise UserError(f"checkpoint: {self.path} has no valid '{name}'")
        return value


def named(prefix: str, tensors: Mapping[str, torch.Tensor | np.ndarray]) -> dict[str, torch.Tensor]:
    """Tensors or arrays under `prefix.`, as `save` takes them."""
    return {f"{prefix}.{name}": torch.as_tensor(value) for name, value in tensors.items()}


def save(path: Path, tensors: Mapping[str, torch.Tensor], note: Mapping[str, Any]) -> None:
    """Writes a checkpoint; the one that was there stays until the new one is whole.

    Raises:
        UserError: it cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    text = json.dumps({"format": FORMAT, "version": tpsrl.__version__, **note}, allow_nan=False)
    try:
        with files.atomic(path, durable=True) as temporary:
            temporary.touch()
            mode = temporary.stat().st_mode
            save_file(whole, temporary, {_KEY: text})
            temporary.chmod(mode)  # as of other files; safetensors lets none but the owner read it
    except OSError as error:
        raise UserError(f"checkpoint: cannot write {path} ({error.strerror or error})") from None
    except SafetensorError as error:
        raise UserError(f"checkpoint: cannot write {path} ({error})") from None


def load(path: str | os.PathLike[str], part: str = "", field: str = "checkpoint") -> Checkpoint:
    """Reads a checkpoint, or of its tensors those under `part.` alone.

    A file that is replaced meanwhile is read as it was when it was opened. `field` is where it was
    named.

    Raises:
        UserError: it is absent, truncated, not one of ours, or of a newer format.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    try:
        with safe_open(files.plain(path), "pt") as file:
            text = (file.metadata() or {}).get(_KEY)
            names = [name for name in file.keys() if not part or name.startswith(f"{part}.")]  # noqa: SIM118
            tensors = {name: file.get_tensor(name) for name in names}
    except OSError as error:
        raise UserError(f"{field}: cannot read {path} ({error.strerror or error})") from None
    except SafetensorError as error:
        raise UserError(f"{field}: {path} is truncated or no checkpoint ({error})") from None
    try:
        note = files.parse_json(text or "")
        written = int(note["format"])
    except (ValueError, TypeError, KeyError):
        raise UserError(f"{field}: {path} is not one of tpsrl's") from None
    if written not in _READABLE:
        by = f", written by tpsrl {note['version']}" if "version" in note else ""
        raise UserError(
            f"{field}: {path} is of format {written}{by}; this version, tpsrl "
            f"{tpsrl.__version__}, reads {' and '.join(map(str, _READABLE))}"
        )
    return Checkpoint(path, tensors, note)


def newest(folder: Path) -> Checkpoint | None:
    """The policy of a training's folder that was trained longest; None where there is none yet.

    The training may be running: what it replaces meanwhile is read as it was.

    Raises:
        UserError: a checkpoint is damaged, or of a newer format.
    """
    paths = [folder / FOLDER / name for name in (BEST, LATEST)]
    found = [load(path, "policy") for path in paths if path.is_file()]
    return max(found, key=lambda checkpoint: checkpoint.steps, default=None)


def save_policy(checkpoint: Checkpoint, path: Path) -> None:
    """Writes what a checkpoint has to act by, and no more.

    Raises:
        UserError: it has no policy, or the file cannot be written.
    """
    kept = {name: checkpoint.note[name] for name in _ACTING if name in checkpoint.note}
    save(path, named("policy", checkpoint.part("policy")), kept)


def policy_part(policy: ActorCritic) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors and the note from which `load_policy` makes the same policy again."""
    spec = {
        "observations": policy.spec.observations,
        "mask": policy.spec.mask,
        "rays": policy.spec.rays,
        "far": policy.spec.far,
    }
    note: dict[str, Any] = {"spec": spec, "policy": policy.settings.to_json()}
    module = encoders.encoder_module(policy.settings.encoder)
    if module is not None:
        note["encoder_module"] = module
    return named("policy", policy.state_dict()), note


def load_policy(checkpoint: Checkpoint) -> ActorCritic:
    """The policy that a checkpoint holds, in evaluation mode.

    Raises:
        UserError: its encoder is not known (names the module that it came from, which is not
            imported, since reading a checkpoint runs no code), or the tensors do not fit what the
            note says.
    """
    spec, settings = policy_spec(checkpoint), policy_settings(checkpoint)
    # A file of a stranger's may promise more than any memory holds.
    stored = sum(tensor.numel() for tensor in checkpoint.part("policy").values())
    least = size.least(settings)
    if least <= stored and not size.is_ordinary(settings):
        least = size.count(spec, settings) or least
    if least > stored or size.takes_too_much(spec):
        raise UserError(f"checkpoint: {checkpoint.path} is of another network (its size)")
    policy = ActorCritic(spec, settings)
    load_weights(policy, checkpoint)
    return policy.eval()


def policy_spec(checkpoint: Checkpoint) -> EnvSpec:
    """What a checkpoint's policy sees, and its action mask; notes of 0.1 have no `rays` and `far`.

    Raises:
        UserError: the checkpoint does not say.
    """
    spec = checkpoint.get("spec", dict)
    try:
        shapes = {str(name): tuple(map(int, s)) for name, s in spec["observations"].items()}
        first, behind = map(int, spec.get("rays", (0, 0)))
        far = float(spec.get("far", 1.0))
        return EnvSpec(shapes, tuple(map(bool, spec["mask"])), rays=(first, behind), far=far)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UserError(f"checkpoint: {checkpoint.path} has no valid 'spec'") from None


def policy_settings(checkpoint: Checkpoint) -> PolicySettings:
    """What a checkpoint's network is made of.

    Raises:
        UserError: the checkpoint does not say, or its encoder is not known (names its module).
    """
    settings = PolicySettings.from_json(checkpoint.get("policy", dict))
    module = checkpoint.note.get("encoder_module")
    if module and settings.encoder not in encoders.encoder_names():
        raise UserError(
            f"checkpoint: {checkpoint.path} has an encoder that is not known, "
            f"'{settings.encoder}'; encoder_modules={module} makes it known"
        )
    return settings


def load_weights(policy: ActorCritic, checkpoint: Checkpoint) -> None:
    """Puts a checkpoint's weights into a policy.

    Raises:
        UserError: names or shapes differ, or a number is not finite.
    """
    put_weights(policy, checkpoint.part("policy"), checkpoint.path)


def put_weights(policy: ActorCritic, weights: Mapping[str, torch.Tensor], path: Path) -> None:
    """Puts weights by name, of the checkpoint at `path`, into a policy; see `load_weights`."""
    own = policy.state_dict()
    for name in sorted(own.keys() | weights.keys()):
        if name not in weights or name not in own or weights[name].shape != own[name].shape:
            raise UserError(f"checkpoint: {path} is of another network ({name})")
        if not bool(torch.isfinite(weights[name]).all()):
            raise UserError(f"checkpoint: {path}: {name} is not finite")
    policy.load_state_dict(weights)
