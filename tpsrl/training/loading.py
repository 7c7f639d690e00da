"""Settings of trainings from what was given, or from an earlier training."""

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
_ONCE = ("out", "init", "encoder")  # what a training is told only when it begins
_AUTO = "auto"  # of `resume`

SkillNamed = TypeVar("SkillNamed")


def of_skill(schema: type[SkillNamed], values: Mapping[str, Any]) -> SkillNamed:
    """Settings with a field `skill` that names one.

    Raises:
        UserError: a setting is not valid.
    """
    settings: Any = config.load(schema, values)
    registry.check_name(settings.skill)
    return typing.cast(SkillNamed, settings)


def distillation(values: Mapping[str, Any]) -> TrainingSettings:
    """See `training`.

    Raises:
        UserError: see there.
    """
    if "out" not in values and "resume" not in values:
        values = {**values, "out": f"out/distill/{values.get('skill', '')}"}
    return training(values, DistillSettings)


def training(
    values: Mapping[str, Any], schema: type[TrainingSettings] = TrainingSettings
) -> TrainingSettings:
    """The settings of a new training, or with `resume` those of an earlier one, changed.

    Args:
        values: by dotted key
        schema: has the defaults of a new one

    Raises:
        UserError: a setting is not valid, the folder is none of a training, or of another skill,
            or what it is to begin with does not fit.
    """
    values = resumed(values)
    folder = values.get("resume")
    if folder is None:
        return fine_tuning.begun(cameras.plain(of_skill(schema, values)), values)
    path = files.user_path(folder, "resume") / CONFIG
    if "out" in values and not _same(values["out"], folder):
        raise UserError(
            f"out: resume={folder} goes on in {folder}; leave out={values['out']} out, or begin a "
            f"new training there by init={folder}"
        )
    if not path.is_file():
        raise UserError(f"resume: {folder} is not the folder of a training (no {CONFIG})")
    for name in ("init", "encoder"):
        if name in values:
            raise UserError(f"{name}: {folder} has weights of its own; leave {name} out, or resume")
    # `starts` is the same as `start_states`, which is what was kept.
    renamed = {"start_states" if key == "starts" else key: values[key] for key in values}
    settings = config.load(schema, renamed, path)
    own = config.load(schema, {}, path)
    if settings.skill != own.skill:
        raise UserError(f"resume: {folder} trains {own.skill}, not {settings.skill}")
    if settings.frozen != own.frozen:
        state = "frozen" if own.frozen else "trained"
        raise UserError(f"frozen: the encoder of {folder} is {state}; leave frozen out, or resume")
    return dataclasses.replace(cameras.plain(settings), out=folder)


def resumed(values: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked for, where `resume=auto` is the folder, or nothing if that has no training.

    Ranks that were started anew go on with what they have saved, whatever they were told at first;
    with that of another job they do not.
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
    """Whether two paths are of one folder."""
    one, other = files.user_path(out), files.user_path(folder, "resume")
    return os.path.realpath(one) == os.path.realpath(other)


def _is_of(job: str, folder: Path) -> bool:
    """Whether a training was begun, or last gone on with, by this job."""
    try:
        with (folder / CONFIG).open(encoding="utf-8", errors="replace") as file:
            return any(line.rstrip("\n") == f"# {job}" for line in file)
    except OSError:
        return False
