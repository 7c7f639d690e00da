"""Initial weights of a training: a policy's (`init=`), or an encoder's alone (`encoder=`)."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skills.core import cameras as pictures
from tpsrl.errors import UserError
from tpsrl.rl.policy.settings import TIMM
from tpsrl.runtime import files
from tpsrl.training import cameras
from tpsrl.training.settings import TrainingSettings
from tpsrl.training.task import env_options

if TYPE_CHECKING:
    from tpsrl.rl.envs.vec_env import EnvSpec
    from tpsrl.rl.run.checkpoint import Checkpoint


def begun(settings: TrainingSettings, given: Mapping[str, Any]) -> TrainingSettings:
    """Returns the settings of a new training, adapted to the checkpoint of its initial weights.

    Args:
        settings: settings of the training
        given: values given by the user, by dotted key

    Raises:
        UserError: see `begin_with`, `see_with` and `with_timm`; `init` and `encoder` are both
            given, an encoder is to be frozen without pretrained weights, or `encoder_weights` is
            given without a network of timm.
    """
    if given.get("cameras") is not None and settings.cameras is None:
        given = {**given, "depth": settings.depth}  # equivalent to the given cameras
    stays = "frozen" if settings.frozen else "preset.policy.frozen_encoder"
    frozen = settings.frozen or settings.preset.policy.frozen_encoder
    of_timm = settings.encoder is not None and settings.encoder.startswith(TIMM)
    if settings.encoder_weights is not None and not of_timm:
        raise UserError("encoder_weights: needs encoder=timm:NAME")
    if settings.init is None and settings.encoder is None:
        if frozen:
            raise UserError(f"{stays}: needs encoder=CHECKPOINT or init=CHECKPOINT")
        return settings
    if settings.init is not None and settings.encoder is not None:
        raise UserError("encoder: already given by init; leave one of them out")
    if settings.frozen:
        policy = dataclasses.replace(settings.preset.policy, frozen_encoder=True)
        preset = dataclasses.replace(settings.preset, policy=policy)
        settings = dataclasses.replace(settings, preset=preset)
    if of_timm:
        if frozen and settings.encoder_weights is None:
            raise UserError(f"{stays}: needs encoder_weights=FILE, else the weights are random")
        return with_timm(settings, given)
    if settings.encoder is not None:
        return see_with(settings, settings.encoder, given)
    settings = begin_with(settings, str(settings.init), given)
    if frozen and settings.preset.policy.encoder == "state":
        raise UserError(f"{stays}: {settings.init} has no encoder, since it has no camera")
    return settings


def begin_with(settings: TrainingSettings, path: str, given: Mapping[str, Any]) -> TrainingSettings:
    """Returns the settings of a training that starts from a checkpoint's policy.

    The network is taken from `tpsrl.rl.run.warm_start.network`, whatever the preset has. Delay and
    base movement are those of the checkpoint. Sensors and images are too, unless the training's
    include them and more: `widened` adapts the checkpoint to sensors, `tpsrl.rl.run.new_towers` to
    images.

    Args:
        settings: settings of the training
        path: a checkpoint, or the folder of a training
        given: values given by the user, by dotted key

    Raises:
        UserError: there is no such checkpoint, it is of another skill, or the user has given
            another value than the checkpoint's; names the field.
    """
    from tpsrl.rl.run import checkpoint as checkpoints
    from tpsrl.rl.run import warm_start

    where = warm_start.find(path)
    checkpoint = checkpoints.load(where, field="init")
    spec, _ = checkpoints.network_of(checkpoint)
    made_for = _made_for(settings, checkpoint, spec)
    if settings.preset.policy.glimpse and not checkpoints.policy_settings(checkpoint).glimpse:
        if made_for.get("depth") is None:
            raise UserError(f"init: {where} sees no head depth; nearest: preset.policy.glimpse=0")
        made_for["depth"] *= 2  # The whole image is seen at half its resolution.
    _check_depth(made_for["cameras"], given, where, "init")
    for name, value in made_for.items():
        _agree(name, getattr(settings, name), value, given, where)
    if made_for.get("depth", 0) is None:  # The encoder `state` implies no camera.
        del made_for["depth"]
    own = settings.preset.policy
    policy = warm_start.network(own, checkpoint)
    for field in dataclasses.fields(policy):
        key = f"preset.policy.{field.name}"
        _agree(key, getattr(own, field.name), getattr(policy, field.name), given, where)
    preset = dataclasses.replace(settings.preset, policy=policy)
    return dataclasses.replace(settings, preset=preset, init=str(where), **made_for)


def see_with(settings: TrainingSettings, path: str, given: Mapping[str, Any]) -> TrainingSettings:
    """Returns the settings of a training that uses the encoder of a checkpoint of any skill.

    The encoder and the image size are those of the checkpoint; all other settings are the
    training's own.

    Args:
        settings: settings of the training
        path: a checkpoint, or the folder of a training
        given: values given by the user, by dotted key

    Raises:
        UserError: there is no such checkpoint, it has no encoder, or the user has given another
            encoder or image size; names the field.
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
        theirs, wanted = getattr(policy, name), getattr(own, name)
        if f"preset.policy.{name}" in given and theirs != wanted:
            raise UserError(
                f"encoder: preset.policy.{name} is {theirs} in {where}, not {wanted}; leave it out"
            )
    preset = dataclasses.replace(settings.preset, policy=policy)
    _check_depth(seen, given, where, "encoder")
    if given.get("cameras") is not None and settings.cameras != seen:
        theirs = seen or f"depth={shape[0]}"
        raise UserError(f"encoder: {where} uses {theirs}, not {settings.cameras}")
    if seen is not None:
        return dataclasses.replace(settings, preset=preset, encoder=str(where), cameras=seen)
    side = shape[0]
    if "depth" in given and settings.depth != side:
        raise UserError(
            f"encoder: {where} uses images of {side} x {side}, not of {settings.depth} x "
            f"{settings.depth}; leave depth out"
        )
    return dataclasses.replace(settings, preset=preset, encoder=str(where), depth=side)


def with_timm(settings: TrainingSettings, given: Mapping[str, Any]) -> TrainingSettings:
    """Returns the settings of a training with the network `encoder` of timm.

    Args:
        settings: settings of the training
        given: values given by the user, by dotted key

    Raises:
        UserError: the user has given another encoder, or `encoder_weights` is not a file.
    """
    name, key = str(settings.encoder), "preset.policy.encoder"
    if given.get(key, name) != name:
        raise UserError(f"encoder: {name}, but {key} is {given[key]}; leave it out")
    policy = dataclasses.replace(settings.preset.policy, encoder=name)
    weights = settings.encoder_weights
    if weights is not None:
        where = files.user_path(weights, "encoder_weights").resolve()
        if not where.is_file():
            raise UserError(f"encoder_weights: no file {where}")
        weights = str(where)
    preset = dataclasses.replace(settings.preset, policy=policy)
    return dataclasses.replace(settings, preset=preset, encoder_weights=weights)


def _pictures(spec: "EnvSpec") -> str | None:
    """Returns a policy's images in the form of `cameras`; None for at most head depth."""
    from tpsrl.rl.envs.pictures import pictures_of
    from tpsrl.world.cameras import HEAD_DEPTH

    sizes = {}
    for name in pictures_of(spec.observations):
        height, width, *_ = spec.observations[name]
        sizes[HEAD_DEPTH if name == "depth" else name] = (height, width)
    return pictures.text(sizes) if sizes.keys() - {HEAD_DEPTH} else None


def _check_depth(seen: str | None, given: Mapping[str, Any], where: Path, field: str) -> None:
    """Refuses `depth` together with a checkpoint that uses other images."""
    if seen is not None and "depth" in given:
        raise UserError(f"{field}: {where} was made with cameras={seen}; leave depth out")


def _agree(key: str, own: Any, theirs: Any, given: Mapping[str, Any], where: Path) -> None:
    """Refuses a value given by the user that differs from the checkpoint's."""
    if key in given and own != theirs:
        raise UserError(f"{key}: {_said(own)}, but {where} was made with {_said(theirs)}")


def _made_for(
    settings: TrainingSettings, checkpoint: "Checkpoint", spec: "EnvSpec"
) -> dict[str, Any]:
    """Returns the settings of a training that a checkpoint's policy requires."""
    import numpy as np

    from skills import registry
    from skills.core.choices import CHOICES
    from skills.core.inputs import PolicyInputs
    from skills.policies import deployed
    from tpsrl.world import action as act

    deploy, where = deployed.read(checkpoint, spec), checkpoint.path
    inputs = deploy.inputs
    if inputs.skill != settings.skill:
        raise UserError(f"init: {where} is a policy for {inputs.skill}, not for {settings.skill}")
    fit = inputs.choices()
    wanted = settings.sensors or settings.preset.sensors
    if wanted and PolicyInputs.of(inputs.skill, wanted).extend(inputs):
        fit = [wanted]
    if not fit:
        raise UserError(
            f"init: the sensors of {where} match none of {', '.join(CHOICES)}: "
            f"{', '.join(inputs.sensors)}"
        )
    # Several choices may have the same sensors; then the one given by the user is kept.
    found: dict[str, Any] = {"delay": deploy.delay, "height_map": inputs.height_map}
    found["sensors"] = settings.sensors if settings.sensors in fit else fit[0]
    found["cameras"] = cameras.of_inputs(inputs)
    depth = inputs.depth
    own = {} if settings.cameras is None else pictures.parse(settings.cameras)
    if inputs.pictures and inputs.pictures.items() < own.items():
        found["cameras"] = settings.cameras
    if found["cameras"] is None and depth is not None and len(set(depth)) != 1:
        raise UserError(f"init: the depth of {where} must be square, got {list(depth)}")
    if found["cameras"] is None:
        found["depth"] = None if depth is None else depth[0]
    if bool(np.any(registry.get(inputs.skill).definition.mask()[act.BASE])):
        found["base_movement"] = any(spec.mask[act.BASE])
    return found


def widened(checkpoint: "Checkpoint", settings: TrainingSettings) -> "Checkpoint":
    """Adapts the checkpoint with the initial weights to the sensors of the training.

    Raises:
        UserError: the checkpoint does not record its inputs.
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
        # The critic of a teacher reads the same sensors, followed by the remaining time.
        columns[CRITIC] = np.append(columns["state"], wide.size)
        sizes[CRITIC] = wide.size + 1
    return warm_start.widened(checkpoint, columns, sizes)


def _said(value: Any) -> str:
    """Formats a value as on the command line."""
    return (
        str(value).lower() if isinstance(value, bool) else "none" if value is None else f"{value}"
    )
