"""Import of user modules with skills, encoders and losses, before the settings are parsed."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tpsrl import config
from tpsrl.runtime import files

# Setting that names user modules: module of the registry that they add to.
_REGISTRIES = {
    "skill_modules": "skills.registry",
    "encoder_modules": "tpsrl.rl.policy.encoder_registry",
    "auxiliary_modules": "tpsrl.rl.learning.auxiliary",
}


def register(values: Mapping[str, Any], skill: str) -> dict[str, Any]:
    """Imports the user modules that settings name.

    If `values` do not name any, those in the `config.yaml` of the training to resume are imported,
    or else those in the file of settings.

    Args:
        values: settings by key
        skill: the skill to train, for the default folder of `resume=auto`

    Returns:
        The given settings that name modules, with absolute paths, so that the training can be
        resumed from any directory.

    Raises:
        UserError: a module cannot be imported, or registers nothing.
    """
    whole = {}
    for key, registry in _REGISTRIES.items():
        named = values.get(key)
        if named is None and values.get("resume"):
            named = config.entry_of(_resumed(values, skill) / "config.yaml", key)
        if named is None and values.get(config.CONFIG):
            named = config.entry_of(files.user_path(values[config.CONFIG], config.CONFIG), key)
        if named:
            whole[key] = importlib.import_module(registry).load_modules(str(named))
    return {key: path for key, path in whole.items() if key in values}


def _resumed(values: Mapping[str, Any], skill: str) -> Path:
    """Returns the folder of the training that the setting `resume` refers to."""
    if values["resume"] != "auto":
        return files.user_path(values["resume"], "resume")
    return files.user_path(values.get("out") or f"out/train/{values.get('skill', skill)}")
