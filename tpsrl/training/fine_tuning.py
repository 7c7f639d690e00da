"""What a training takes over from a checkpoint: the policy (`init=`), or what sees (`encoder=`)."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skills.core import cameras as pictures
from tpsrl.errors import UserError
from tpsrl.training import cameras
from tpsrl.training.settings import TrainingSettings
from tpsrl.training.task import env_options

if TYPE_CHECKING:
    from tpsrl.rl.envs.vec_env import EnvSpec
    from tpsrl.rl.run.checkpoint import Checkpoint


def begun(settings: TrainingSettings, given: Mapping[str, Any]) -> TrainingSettings:
    """The settings of a new training, with what the checkpoint that it begins with says.

    Args:
        settings: of the training
        given: by the user, by dotted key

    Raises:
        UserError: see `begin_with` and `see_with`; `init` and `encoder` are both given, or neither
            and the encoder is to be frozen.
    """
    if given.get("cameras") is not None and settings.cameras is None:
        given = {**given, "depth": settings.depth}  # which says the same
    stays = "frozen" if settings.frozen else "preset.policy.frozen_encoder"
    frozen = settings.frozen or settings.preset.policy.frozen_encoder
    if settings.init is None and settings.encoder is None:
        if frozen:
            raise UserError(f"{stays}: encoder=CHECKPOINT, or init=CHECKPOINT, says whose encoder")
        return settings
    if settings.init is not None and settings.encoder is not None:
        raise UserError("encoder: init brings one already; leave one of them out")
    if settings.frozen:
        policy = dataclasses.replace(settings.preset.policy, frozen_encoder=True)
        preset = dataclasses.replace(settings.preset, policy=policy)
        settings = dataclasses.replace(settings, preset=preset)
    if settings.encoder is not None:
        return see_with(settings, settings.encoder, given)
    settings = begin_with(settings, str(settings.init), given)
    if frozen and settings.preset.policy.encoder == "state":
        raise UserError(f"{stays}: {settings.init} has no encoder, it acts without camera")
    return settings


def begin_with(settings: TrainingSettings, path: str, given: Mapping[str, Any]) -> TrainingSettings:
    """The settings of a training that begins with a checkpoint.

    The network is as `tpsrl.rl.run.warm_start.network` says, whatever the preset has. Camera,
    delay and whether the base moves are the checkpoint's. So are the sensors, unless those of the
    training are the checkpoint's and more, which `widened` makes it fit for.

    Args:
        settings: of the training
        path: of the checkpoint, or of a training's folder
        given: by the user, by dotted key

    Raises:
        UserError: there is no such checkpoint, it is of another skill, or the user has asked for
            something else than what it was made for; names the field.
    """
    from tpsrl.rl.run import checkpoint as checkpoints
    from tpsrl.rl.run import warm_start

    where = warm_start.find(path)
    checkpoint = checkpoints.load(where, field="init")
    spec, _ = checkpoints.network_of(checkpoint)
    made_for = _made_for(settings, checkpoint, spec)
    _check_depth(made_for["cameras"], given, where, "init")
    for name, value in made_for.items():
        _agree(name, getattr(settings, name), value, given, where)
    if made_for.get("depth", 0) is None:  # The encoder says that there is no camera.
        del made_for["depth"]
    own = settings.preset.policy
    policy = warm_start.network(own, checkpoint)
    for field in dataclasses.fields(policy):
        key = f"preset.policy.{field.name}"
        _agree(key, getattr(own, field.name), getattr(policy, field.name), given, where)
    preset = dataclasses.replace(settings.preset, policy=policy)
    return dataclasses.replace(settings, preset=preset, init=str(where), **made_for)


def see_with(settings: TrainingSettings, path: str, given: Mapping[str, Any]) -> TrainingSettings:
    """The settings of a training that takes the encoder of a checkpoint, of whatever skill.

    What looks at the camera's pictures, and their size, are the checkpoint's; all else is the
    training's own.

    Args:
        settings: of the training
        path: of the checkpoint, or of a training's folder
        given: by the user, by dotted key

    Raises:
        UserError: there is no such checkpoint, it has no encoder, or the user has asked for another
            one or for pictures of another size; names the field.
    """
    from tpsrl.rl.run import checkpoint as checkpoints
    from tpsrl.rl.run import warm_start

    where = warm_start.find(path, "encoder")
    checkpoint = checkpoints.load(where, field="encoder")
    own = settings.preset.policy
    policy = warm_start.encoder_of(own, checkpoint)
    spec, _ = checkpoints.network_of(checkpoint)
    seen = _pictures(spec)
    shape = spec.observations.get("depth", ())
    if seen is None and len(set(shape)) != 1:
        sides = " x ".join(map(str, shape)) or "none"
        raise UserError(f"encoder: the pictures of {where} must be square, got {sides}")
    for name in ("encoder", "encoder_width", "visual_width"):
        theirs, asked = getattr(policy, name), getattr(own, name)
        if f"preset.policy.{name}" in given and theirs != asked:
            raise UserError(
                f"encoder: preset.policy.{name} is {theirs} in {where}, not {asked}; leave it out"
            )
    preset = dataclasses.replace(settings.preset, policy=policy)
    _check_depth(seen, given, where, "encoder")
    if given.get("cameras") is not None and settings.cameras != seen:
        theirs = seen or f"depth={shape[0]}"
        raise UserError(f"encoder: {where} looks at {theirs}, not at {settings.cameras}")
    if seen is not None:
        return dataclasses.replace(settings, preset=preset, encoder=str(where), cameras=seen)
    side = shape[0]
    if "depth" in given and settings.depth != side:
        raise UserError(
            f"encoder: {where} looks at pictures of {side} x {side}, not of {settings.depth} x "
            f"{settings.depth}; leave depth out"
        )
    return dataclasses.replace(settings, preset=preset, encoder=str(where), depth=side)


def _pictures(spec: "EnvSpec") -> str | None:
    """The pictures that a policy looks at as `cameras` has them; None for head depth alone."""
    from tpsrl.rl.envs.pictures import pictures_of
    from tpsrl.world.cameras import HEAD_DEPTH

    sizes = {}
    for name in pictures_of(spec.observations):
        height, width, *_ = spec.observations[name]
        sizes[HEAD_DEPTH if name == "depth" else name] = (height, width)
    return pictures.text(sizes) if sizes.keys() - {HEAD_DEPTH} else None


def _check_depth(seen: str | None, given: Mapping[str, Any], where: Path, field: str) -> None:
    """Refuses `depth` beside a checkpoint that looks at other pictures."""
    if seen is not None and "depth" in given:
        raise UserError(f"{field}: {where} was made with cameras={seen}; leave depth out")


def _agree(key: str, own: Any, theirs: Any, given: Mapping[str, Any], where: Path) -> None:
    """Refuses what the user has asked for and the checkpoint was not made with."""
    if key in given and own != theirs:
        raise UserError(f"{key}: {_said(own)}, but {where} was made with {_said(theirs)}")


def _made_for(
    settings: TrainingSettings, checkpoint: "Checkpoint", spec: "EnvSpec"
) -> dict[str, Any]:
    """What a checkpoint's policy needs of its environments, as settings of a training."""
    import numpy as np

    from skills import registry
    from skills.core.choices import CHOICES
    from skills.core.inputs import PolicyInputs
    from skills.policies import deployed
    from tpsrl.world import action as act

    deploy, where = deployed.read(checkpoint, spec), checkpoint.path
    inputs = deploy.inputs
    if inputs.skill != settings.skill:
        raise UserError(f"init: {where} acts for {inputs.skill}, not for {settings.skill}")
    fit = inputs.choices()
    wanted = settings.sensors or settings.preset.sensors
    if wanted and PolicyInputs.of(inputs.skill, wanted).extend(inputs):
        fit = [wanted]
    if not fit:
        raise UserError(
            f"init: the sensors of {where} are neither of {', '.join(CHOICES)}, but "
            f"{', '.join(inputs.sensors)}"
        )
    # Where both choices are the same, either that is asked for fits.
    found: dict[str, Any] = {"delay": deploy.delay, "height_map": inputs.height_map}
    found["sensors"] = settings.sensors if settings.sensors in fit else fit[0]
    found["cameras"] = cameras.of_inputs(inputs)
    depth = inputs.depth
    if found["cameras"] is None and depth is not None and len(set(depth)) != 1:
        raise UserError(f"init: the depth of {where} must be square, got {list(depth)}")
    if found["cameras"] is None:
        found["depth"] = None if depth is None else depth[0]
    if bool(np.any(registry.get(inputs.skill).definition.mask()[act.BASE])):
        found["base_movement"] = any(spec.mask[act.BASE])
    return found


def widened(checkpoint: "Checkpoint", settings: TrainingSettings) -> "Checkpoint":
    """The checkpoint that a training begins with, made fit for the sensors of the training.

    Raises:
        UserError: the checkpoint does not say what it is shown.
    """
    import numpy as np

    from skills.policies import deployed
    from tpsrl.rl.policy.actor_critic import CRITIC
    from tpsrl.rl.run import checkpoint as checkpoints
    from tpsrl.rl.run import warm_start

    spec, _ = checkpoints.network_of(checkpoint)
    narrow, wide = deployed.read(checkpoint, spec).inputs, env_options(settings).inputs
    if not wide.extend(narrow):
        return checkpoint
    columns = {"state": wide.places(narrow)}
    sizes = {"state": wide.size}
    if spec.observations.get(CRITIC) == (narrow.size + 1,):
        # The critic of a teacher reads the same sensors, and last of all the time that is left.
        columns[CRITIC] = np.append(columns["state"], wide.size)
        sizes[CRITIC] = wide.size + 1
    return warm_start.widened(checkpoint, columns, sizes)


def _said(value: Any) -> str:
    """A value as the command line has it."""
    return (
        str(value).lower() if isinstance(value, bool) else "none" if value is None else f"{value}"
    )
