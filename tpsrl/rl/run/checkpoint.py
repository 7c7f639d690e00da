"""Checkpoint files: tensors as safetensors, everything else as JSON in the same file's header.

Unlike a pickle, such a file cannot run code when it is read. Files are written under another name
and then renamed, so an existing file is complete even if the writer was killed.

The note has the version of tpsrl that wrote the file. The current format is 2; a policy of format 1
can still act, but no training can resume from it.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import torch

import tpsrl
from tpsrl.errors import UserError
from tpsrl.rl.envs.pictures import COLOUR, kind_of
from tpsrl.rl.envs.vec_env import MAP, EnvSpec
from tpsrl.rl.policy import encoder_registry as encoders
from tpsrl.rl.policy import size
from tpsrl.rl.policy.actor_critic import CRITIC, ActorCritic
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.runtime import files, records

FORMAT = 2
_READABLE = (1, FORMAT)
_WRITER_OF_1 = "0.1"  # not stored in files of format 1
# In the folder of a training.
FOLDER, LATEST, BEST = "checkpoints", "latest.safetensors", "best.safetensors"
_KEY = "tpsrl"  # of the header's metadata
# Entries of the note from which a policy is built, and those that acting needs.
_ACTING = ("deploy", "steps", "spec", "policy", "encoder_module", "card")
_AXES = {"state": 1, MAP: 3, CRITIC: 1}  # of a policy's observations beside pictures
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclasses.dataclass(frozen=True, slots=True)
class _Spec:
    """Observations and actions of a policy in a note; notes of older versions lack some."""

    observations: dict[str, tuple[Annotated[int, msgspec.Meta(ge=1)], ...]]
    mask: Annotated[tuple[bool, ...], msgspec.Meta(min_length=1)]
    rays: tuple[records.Count, records.Count] = (0, 0)
    gaze: tuple[records.Count, records.Count] = (0, 0)
    grip_rule: tuple[records.Count, records.Count] = (0, 0)
    far: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    classes: Annotated[int, msgspec.Meta(ge=0, le=256)] = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Checkpoint:
    """Tensors by dotted name, and a note of JSON types.

    `field` is the setting that named the file, for messages.
    """

    path: Path
    tensors: dict[str, torch.Tensor]
    note: dict[str, Any]
    field: str = "checkpoint"

    def refused(self, why: str) -> UserError:
        """Returns the error for a file that is not as expected."""
        return UserError(f"{self.field}: {self.path} {why}")

    @property
    def version(self) -> str:
        """Version of tpsrl that wrote the file."""
        return str(self.note.get("version", _WRITER_OF_1))

    def check_resumable(self) -> None:
        """Checks that a training can resume from the checkpoint, and not only a policy act by it.

        Raises:
            UserError: the format is an earlier one; names the version that wrote the file.
        """
        if self.note["format"] != FORMAT:
            raise UserError(
                f"resume: {self.path} has format {self.note['format']}, written by tpsrl "
                f"{self.version}; its policy can be used, but only format {FORMAT} can be resumed"
            )

    @property
    def steps(self) -> int:
        """Number of steps that the policy has learned from; 0 if the note has no such entry.

        Raises:
            UserError: the entry is invalid.
        """
        steps: int = self.get("steps", records.Count) if "steps" in self.note else 0
        return steps

    def part(self, name: str) -> dict[str, torch.Tensor]:
        """Returns the tensors under `name.`, without this prefix.

        Raises:
            UserError: there are none.
        """
        found = self.optional(name)
        if not found:
            raise self.refused(f"has no {name}")
        return found

    def optional(self, name: str) -> dict[str, torch.Tensor]:
        """Returns the tensors of `part`, or {} if there are none."""
        prefix = f"{name}."
        tensors = self.tensors.items()
        return {key.removeprefix(prefix): t for key, t in tensors if key.startswith(prefix)}

    def get(self, name: str, kind: Any) -> Any:
        """Returns an entry of the note as a value of type `kind` (`tpsrl.runtime.records`).

        Raises:
            UserError: the entry is missing or of another type.
        """
        if name not in self.note:
            raise self.refused(f"has no '{name}'")
        return records.decode(self.note[name], kind, f"{self.field}: {self.path}: {name}")


def named(prefix: str, tensors: Mapping[str, torch.Tensor | np.ndarray]) -> dict[str, torch.Tensor]:
    """Prefixes the names of tensors or arrays with `prefix.`; the result is input of `save`."""
    return {f"{prefix}.{name}": torch.as_tensor(value) for name, value in tensors.items()}


def save(path: Path, tensors: Mapping[str, torch.Tensor], note: Mapping[str, Any]) -> None:
    """Writes a checkpoint; an existing file remains until the new one is complete.

    Raises:
        UserError: the file cannot be written.
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
            temporary.chmod(mode)  # of other files; safetensors lets only the owner read
    except OSError as error:
        raise UserError(f"checkpoint: cannot write {path} ({error.strerror or error})") from None
    except SafetensorError as error:
        raise UserError(f"checkpoint: cannot write {path} ({error})") from None


def load(path: str | os.PathLike[str], part: str = "", field: str = "checkpoint") -> Checkpoint:
    """Reads a checkpoint, with all tensors or only those under `part.`.

    A file that is replaced meanwhile is read as it was when opened. `field` is the setting that
    named the file, for messages.

    Raises:
        UserError: the file is missing, truncated, not a checkpoint of tpsrl, or of a newer format.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load as load_tensors

    path = Path(path)
    try:
        # `safe_open` opens a file twice, and the second may be another checkpoint.
        content = files.plain(path).read_bytes()
        tensors = load_tensors(content)
        text = _metadata(content).get(_KEY)
    except OSError as error:
        raise UserError(f"{field}: cannot read {path} ({error.strerror or error})") from None
    except SafetensorError as error:
        raise UserError(f"{field}: {path} is truncated or not a checkpoint ({error})") from None
    if text is None:
        raise UserError(f"{field}: {path} is not a checkpoint of tpsrl")
    try:
        note = files.parse_json(text)
    except ValueError as error:
        raise UserError(f"{field}: {path} is not a checkpoint of tpsrl ({error})") from None
    written = note.get("format") if isinstance(note, dict) else None
    if type(written) is not int:
        raise UserError(f"{field}: {path} is not a checkpoint of tpsrl (no 'format')")
    if written not in _READABLE:
        by = f", written by tpsrl {note['version']}" if "version" in note else ""
        raise UserError(
            f"{field}: {path} has format {written}{by}; this version, tpsrl "
            f"{tpsrl.__version__}, reads {' and '.join(map(str, _READABLE))}"
        )
    names = [name for name in sorted(tensors) if not part or name.startswith(f"{part}.")]
    return Checkpoint(path, {name: tensors[name] for name in names}, note, field)


def _metadata(content: bytes) -> dict[str, str]:
    """Returns the metadata in the header of a valid safetensors file."""
    length = int.from_bytes(content[:8], "little")
    found: dict[str, str] = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
    return found


def newest(folder: Path, field: str = "checkpoint") -> Checkpoint | None:
    """Loads the policy of a training's folder that was trained longest; None if there is none yet.

    The training may be running: a file that is replaced meanwhile is read as it was. `field` is the
    setting that named the folder, for messages.

    Raises:
        UserError: a checkpoint is damaged, or of a newer format.
    """
    paths = [folder / FOLDER / name for name in (BEST, LATEST)]
    found = [load(path, "policy", field) for path in paths if path.is_file()]
    return max(found, key=lambda checkpoint: checkpoint.steps, default=None)


def save_policy(checkpoint: Checkpoint, path: Path) -> None:
    """Writes only the parts of a checkpoint that acting needs.

    Raises:
        UserError: the checkpoint has no policy, or the file cannot be written.
    """
    kept = {name: checkpoint.note[name] for name in _ACTING if name in checkpoint.note}
    save(path, named("policy", checkpoint.part("policy")), kept)


def policy_part(policy: ActorCritic) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Returns the tensors and the note from which `load_policy` makes the same policy."""
    spec = {
        "observations": policy.spec.observations,
        "mask": policy.spec.mask,
        "rays": policy.spec.rays,
        "far": policy.spec.far,
        # Absent for policies without class pictures, as in older files.
        **({"classes": policy.spec.classes} if policy.spec.classes else {}),
        **({"gaze": policy.spec.gaze} if any(policy.spec.gaze) else {}),
        **({"grip_rule": policy.spec.grip_rule} if policy.settings.grip_rule else {}),
    }
    note: dict[str, Any] = {"spec": spec, "policy": policy.settings.to_json()}
    module = encoders.encoder_module(policy.settings.encoder)
    if module is not None:
        note["encoder_module"] = module
    return named("policy", policy.state_dict()), note


def load_policy(checkpoint: Checkpoint) -> ActorCritic:
    """Loads the policy of a checkpoint, in evaluation mode.

    Raises:
        UserError: see `network_of`; or the tensors do not fit the note.
    """
    spec, settings = network_of(checkpoint)
    with _about(checkpoint):
        policy = ActorCritic(spec, settings)
    load_weights(policy, checkpoint)
    return policy.eval()


def network_of(checkpoint: Checkpoint) -> tuple[EnvSpec, PolicySettings]:
    """Returns the observations and the network settings of a checkpoint's policy.

    A file of unknown origin may describe a network that exceeds any memory, so nothing is built
    unless the file has enough weights for its note.

    Raises:
        UserError: see `policy_spec` and `policy_settings`; or there are too few weights.
    """
    spec, settings = policy_spec(checkpoint), policy_settings(checkpoint)
    stored = sum(tensor.numel() for tensor in checkpoint.part("policy").values())
    least = size.least(settings, *spec.observations["state"])
    if least <= stored and not size.is_ordinary(settings):
        with _about(checkpoint):
            least = size.count(spec, settings) or least
    if least > stored:
        raise checkpoint.refused("has another network (its size)")
    return spec, settings


def policy_spec(checkpoint: Checkpoint) -> EnvSpec:
    """Returns the observations and the action mask of a checkpoint's policy.

    Raises:
        UserError: they are missing or invalid, or larger than those of any environment.
    """
    seen: _Spec = checkpoint.get("spec", _Spec)
    shapes = seen.observations
    fits = all(len(sides) == _axes(name) for name, sides in shapes.items())
    fits = fits and "state" in shapes
    for first, behind in (seen.rays, seen.gaze):
        fits = fits and first <= behind <= shapes["state"][0]
    column, part = seen.grip_rule
    fits = fits and column < shapes["state"][0] and part < len(seen.mask)
    if not fits:
        raise checkpoint.refused("has no valid 'spec'")
    spec = EnvSpec(
        shapes,
        seen.mask,
        rays=seen.rays,
        far=seen.far,
        classes=seen.classes,
        gaze=seen.gaze,
        grip_rule=seen.grip_rule,
    )
    if size.takes_too_much(spec):
        raise checkpoint.refused("has another network (the size of its observations)")
    return spec


def _axes(name: str) -> int | None:
    """Returns the number of axes of an observation; None if policies have none of that name."""
    kind = kind_of(name)
    return _AXES.get(name) if kind is None else 3 if kind == COLOUR else 2


def policy_settings(checkpoint: Checkpoint) -> PolicySettings:
    """Returns the network settings of a checkpoint's policy.

    Raises:
        UserError: the settings are missing or invalid, or the encoder is not known (names its
            module, which is not imported, since reading a checkpoint runs no code).
    """
    note = checkpoint.get("policy", dict)
    with _about(checkpoint):
        settings = PolicySettings.from_json(note)
        settings.check()
    if settings.encoder in encoders.encoder_names():
        return settings
    module = checkpoint.note.get("encoder_module")
    if isinstance(module, str):
        raise checkpoint.refused(
            f"has an unknown encoder, '{settings.encoder}'; register it with "
            f"encoder_modules={module}"
        )
    with _about(checkpoint):
        encoders.check_encoder(settings.encoder)
    return settings


@contextlib.contextmanager
def _about(checkpoint: Checkpoint) -> Iterator[None]:
    """Prefixes errors raised inside the block with the checkpoint's field and path."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{checkpoint.field}: {checkpoint.path}: {error}") from None


def load_weights(policy: ActorCritic, checkpoint: Checkpoint) -> None:
    """Loads a checkpoint's weights into a policy.

    Raises:
        UserError: names, shapes or types differ, or a weight is not finite.
    """
    put_weights(policy, checkpoint.part("policy"), checkpoint.path, checkpoint.field)


def put_weights(
    policy: ActorCritic, weights: Mapping[str, torch.Tensor], path: Path, field: str = "checkpoint"
) -> None:
    """Loads weights by name, of the checkpoint at `path`, into a policy; see `load_weights`."""
    own = policy.state_dict()
    for name in sorted(own.keys() | weights.keys()):
        if name not in weights or name not in own or weights[name].shape != own[name].shape:
            raise UserError(f"{field}: {path} has another network ({name})")
        kind = weights[name].dtype
        if kind not in (_FLOATS if own[name].is_floating_point() else (own[name].dtype,)):
            raise UserError(f"{field}: {path}: {name} has the wrong type, {kind}")
        if not bool(torch.isfinite(weights[name]).all()):
            raise UserError(f"{field}: {path}: {name} is not finite")
    policy.load_state_dict(weights)
