"""Loads the settings of a training from given values, or from an earlier training."""

import dataclasses
import os
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from skills import registry
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.runtime import files
from tpsrl.training import cameras, fine_tuning, ranks
from tpsrl.training.settings import DistillSettings, TrainingSettings

CONFIG, LATEST = "config.yaml", "checkpoints/latest.safetensors"
_WEIGHTS = ("init", "encoder", "encoder_weights")  # settings of initial weights
_ONCE = ("out", *_WEIGHTS)  # settings that only a new training accepts
_AUTO = "auto"  # value of `resume`

SkillNamed = TypeVar("SkillNamed")


def of_skill(schema: type[SkillNamed], values: Mapping[str, Any]) -> SkillNamed:
    """Loads settings and checks that their field `skill` names a skill.

    Raises:
        UserError: a setting is not valid.
    """
    settings: Any = config.load(schema, values)
    registry.check_name(settings.skill)
    return typing.cast(SkillNamed, settings)


def distillation(values: Mapping[str, Any]) -> TrainingSettings:
    """Loads the settings of a distillation; see `training`.

    Raises:
        UserError: see `training`.
    """
    if "out" not in values and "resume" not in values:
        values = {**values, "out": f"out/distill/{values.get('skill', '')}"}
    return training(values, DistillSettings)


def training(
    values: Mapping[str, Any], schema: type[TrainingSettings] = TrainingSettings
) -> TrainingSettings:
    """Loads the settings of a new training, or with `resume` those of an earlier one, changed.

    Args:
        values: values by dotted key
        schema: dataclass with the defaults of a new training

    Raises:
        UserError: a setting is not valid, the folder holds no training or one of another skill, or
            the initial weights do not fit.
    """
    values = resumed(values)
    folder = values.get("resume")
    if folder is None:
        return fine_tuning.begun(cameras.plain(of_skill(schema, values)), values)
    path = files.user_path(folder, "resume") / CONFIG
    if "out" in values and not _same(values["out"], folder):
        raise UserError(
            f"out: resume={folder} continues in {folder}; remove out={values['out']}, or start a "
            f"new training there with init={folder}"
        )
    if not path.is_file():
        raise UserError(f"resume: {folder} is not the folder of a training (no {CONFIG})")
    for name in _WEIGHTS:
        if name in values:
            raise UserError(f"{name}: {folder} has weights of its own; leave {name} out, or resume")
    # `starts` is an alias of `start_states`, which config.yaml contains.
    renamed = {"start_states" if key == "starts" else key: values[key] for key in values}
    settings = config.load(schema, renamed, path)
    own = config.load(schema, {}, path)
    if settings.skill != own.skill:
        raise UserError(f"resume: {folder} trains {own.skill}, not {settings.skill}")
    if settings.frozen != own.frozen:
        state = "frozen" if own.frozen else "trained"
        raise UserError(f"frozen: the encoder of {folder} is {state}; leave frozen out, or resume")
    if _has_random_colours(settings) != _has_random_colours(own):
        given = next(
            (key for key in cameras.RANDOM_COLOURS if key in values), cameras.RANDOM_COLOURS[0]
        )
        state = "with" if _has_random_colours(own) else "without"
        raise UserError(
            f"{given}: {folder} was begun {state} random colours, which a resumed training cannot "
            f"change; nearest: {getattr(own, given):g}"
        )
    return dataclasses.replace(cameras.plain(settings), out=folder)


def _has_random_colours(settings: TrainingSettings) -> bool:
    return any(getattr(settings, key) > 0.0 for key in cameras.RANDOM_COLOURS)


def resumed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `values` with `resume=auto` replaced by the folder, or removed if it has no training.

    Restarted ranks resume from the training in `out`, whatever the original command was, if the
    training belongs to their job.
    """
    job = "" if "resume" in values else ranks.restarted()
    if values.get("resume") != _AUTO and not job:
        return dict(values)
    out = values.get("out") or f"out/train/{values.get('skill', '')}"
    rest = {key: value for key, value in values.items() if key != "resume"}
    folder = files.user_path(out)
    if not (folder / LATEST).is_file() or (job and not _is_of(job, folder)):
        return rest
    return {"resume": out} | {key: value for key, value in rest.items() if key not in _ONCE}


def _same(out: str, folder: str) -> bool:
    """Returns whether two paths lead to one folder."""
    one, other = files.user_path(out), files.user_path(folder, "resume")
    return os.path.realpath(one) == os.path.realpath(other)


def _is_of(job: str, folder: Path) -> bool:
    """Returns whether a training was last started or resumed by this job."""
    try:
        with (folder / CONFIG).open(encoding="utf-8", errors="replace") as file:
            return any(line.rstrip("\n") == f"# {job}" for line in file)
    except OSError:
        return False
