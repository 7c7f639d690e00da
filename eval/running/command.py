"""Command lines that repeat an evaluation or another command with the same settings."""

import dataclasses
import shlex
from collections.abc import Collection
from typing import Any

from eval.settings import EvalSettings
from tpsrl import config
from tpsrl.config import preset_names

# Settings that do not affect the report, or that each replay sets itself.
_LEFT_OUT = frozenset(("scenario", "out", "processes", "videos", "video_stride", "replace"))


def settings_command(settings: EvalSettings) -> str:
    """Returns `tpsrl eval SCENARIO key=value ...` with the keys that differ from their defaults."""
    name = settings.scenario.name
    target = name if name in preset_names("scenario") else f"{name}.yaml"
    return command_line(("tpsrl", "eval", target), settings, _LEFT_OUT)


def command_line(call: Collection[str], settings: Any, left_out: Collection[str]) -> str:
    """Returns a call with `key=value ...` for the settings that differ from their defaults."""
    words = list(call)
    for field in dataclasses.fields(settings):
        if field.name not in left_out:
            words += _words(field, getattr(settings, field.name))
    return shlex.join(words)


def _words(field: Any, value: Any) -> list[str]:
    if "group" in field.metadata:  # a preset, as its name and changed entries
        group, default = field.metadata["group"], field.metadata["preset"]
        own = value.name not in preset_names(group)  # from a file, as changed entries alone
        named = [] if own or value.name == default else [f"{field.name}={value.name}"]
        changes = config.preset_changes(group, value, default)
        return [*named, *(f"{field.name}.{k}={_text(v)}" for k, v in changes.items())]
    if "some_of" in field.metadata:
        entries = config.dotted(value, f"{field.name}.")
        return [f"{key}={_text(entry)}" for key, entry in entries]
    if hasattr(value, "given"):
        return [f"{field.name}.{key}={path}" for key, path in value.given().items()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # A nested part, as its changed entries.
        default = dataclasses.asdict(field.default_factory())
        changes = {k: v for k, v in dataclasses.asdict(value).items() if v != default[k]}
        return [f"{field.name}.{k}={_text(v)}" for k, v in changes.items()]
    return [] if value == field.default else [f"{field.name}={_text(value)}"]


def _text(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
