"""Fast checks of a training before it starts."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skills.core.choices import CHOICES as SENSORS
from tpsrl.errors import UserError, renamed, unknown
from tpsrl.rl.learning.settings import AUXILIARY_NAMES
from tpsrl.rl.policy.settings import ENCODER_NAMES
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.runtime import files
from tpsrl.training import cameras, task
from tpsrl.training.settings import TrainingSettings

_SPARE_S = 30.0  # additional time of a worker after the timeout of its Habitat process
_COMPILING_S = 900.0  # time limit for compiling the kernels of `warp` at the first step


def checked(settings: TrainingSettings) -> TrainingSettings:
    """Returns settings with absolute paths, after all checks that take no time.

    Raises:
        UserError: the collector, encoder or logger is not available, or a file or folder is
            invalid.
    """
    from tpsrl.rl.run import loggers, sizes

    check(settings.preset)
    settings.preset.check_surroundings(settings.processes, bool(settings.demos))
    preset = settings.preset
    sensors, encoder = settings.sensors or preset.sensors, preset.policy.encoder
    side, field = cameras.check(settings, sensors, encoder, "preset.policy.encoder")
    cameras.colour_changes(settings)
    task.changes(settings)
    sizes.check(settings.preset, side, field=field)
    loggers.check(settings.logger)
    out = files.check_writable(settings.out or f"out/train/{settings.skill}")
    return dataclasses.replace(
        _fit_for_engine(settings),
        out=str(out),
        demos=whole_folders(settings.demos, "demos"),
        teacher=_whole_teacher(settings.teacher) or default_teacher(settings.preset),
        start_states=_start_states(settings),
        starts=None,
        validation_starts=_validation_starts(settings),
    )


def _fit_for_engine(settings: TrainingSettings) -> TrainingSettings:
    """Returns settings in which the step timeout of workers is long enough for their engine."""
    if settings.engine == "mujoco":
        return settings
    known = {"habitat": settings.habitat.timeout_s + _SPARE_S, "warp": _COMPILING_S}
    patience = max(settings.preset.hang_s, known[settings.engine])
    settings = dataclasses.replace(
        settings, preset=dataclasses.replace(settings.preset, hang_s=patience)
    )
    if settings.engine != "habitat":
        return settings
    return dataclasses.replace(
        settings,
        habitat=dataclasses.replace(
            settings.habitat,
            python=settings.habitat.interpreter(),
            data=str(Path(settings.habitat.data).expanduser().resolve()),
        ),
    )


def check(preset: TrainSettings, prefix: str = "preset.") -> None:
    """Refuses early a preset that would fail only after the episodes are generated.

    `prefix` is put before the names of fields in messages.

    Raises:
        UserError: the collector, encoder or auxiliary loss is unknown (names the nearest), or
            settings of the learner contradict each other.
    """
    from tpsrl.rl.collection.settings import COLLECTORS

    if preset.collector not in COLLECTORS:
        raise unknown(f"{prefix}collector", preset.collector, COLLECTORS)
    preset.ppo.check(f"{prefix}ppo.")
    steps = preset.num_envs * preset.num_steps
    if preset.ppo.minibatches > steps:
        raise UserError(
            f"{prefix}ppo.minibatches: {preset.ppo.minibatches} is more than the {steps:,} steps "
            "of a rollout"
        )
    preset.preemption_settings().check(prefix)
    for field, value in (("min_batch", preset.min_batch), ("max_batch", preset.max_batch)):
        if value > preset.num_envs:
            raise UserError(
                f"{prefix}{field}: {value} is more than the {preset.num_envs} environments"
            )
    preset.policy.check(f"{prefix}policy.")
    if preset.sensors and preset.sensors not in SENSORS:
        raise unknown(f"{prefix}sensors", preset.sensors, SENSORS)
    if preset.policy.encoder not in ENCODER_NAMES:
        from tpsrl.rl.policy.encoder_registry import check_encoder  # imports torch, which is slow

        check_encoder(preset.policy.encoder, f"{prefix}policy.encoder")
    auxiliary = preset.ppo.auxiliary
    if auxiliary and auxiliary not in AUXILIARY_NAMES:
        from tpsrl.rl.learning.auxiliary import check_auxiliary

        check_auxiliary(auxiliary, f"{prefix}ppo.auxiliary")


def default_teacher(preset: TrainSettings) -> str | None:
    """Returns the shipped teacher if the preset uses a teacher, else None."""
    from skills.policies.pretrained import WORD

    return WORD if preset.ppo.teacher_coef > 0.0 else None


def whole_folders(text: str | None, field: str) -> str | None:
    """Makes comma-separated folders absolute, so that a training can be resumed from anywhere."""
    if text is None:
        return None
    folders = filter(None, (folder.strip() for folder in text.split(",")))
    return ",".join(os.path.realpath(files.user_path(folder, field)) for folder in folders)


def _whole_teacher(teacher: str | None) -> str | None:
    from skills.policies.pretrained import WORD

    return teacher if teacher == WORD else whole_folders(teacher, "teacher")


def _start_states(settings: TrainingSettings) -> str | None:
    """Returns the start states with absolute paths, to resume the training from anywhere."""
    given = [text for text in (settings.start_states, settings.starts) if text is not None]
    if len(set(given)) > 1:
        raise UserError(f"start_states: '{given[0]}' and starts={given[1]} contradict each other")
    field = "starts" if settings.start_states is None else "start_states"
    return whole_paths(given[0], field) if given else None


def _validation_starts(settings: TrainingSettings) -> str | None:
    """Returns the start states of validations with absolute paths.

    Validations use each start state in order, so a mixture of several parts is refused.
    """
    from skills.starts.mixture import is_mixture, parse

    text, field = settings.validation_starts, "validation_starts"
    if text is None:
        return None
    whole = whole_paths(text, field)
    if is_mixture(text) and len(parse(text)) > 1:
        raise UserError(f"{field}: '{text}' has several parts; choose one of them")
    return whole


def whole_paths(text: str, field: str) -> str:
    """Returns start states with absolute paths.

    Raises:
        UserError: the start states are invalid; names the field.
    """
    from skills.starts import mixture
    from skills.starts.recorded import load_starts

    with renamed("starts", field):
        if mixture.is_mixture(text):
            return mixture.whole_paths(text)
        path = Path(os.path.realpath(files.user_path(text, "starts")))
        load_starts(path)  # raises an error for an invalid file
    return str(path)


def check_banks(then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuses to resume with a bank that has changed, since its start states would differ."""
    before = then.get("banks", {})
    for folder, digest in now.get("banks", {}).items():
        if before.get(folder, digest) != digest:
            raise UserError(
                f"start_states: bank:{folder} has changed since the training began "
                f"({digest}, was {before[folder]})"
            )
