"""Skills, encoders and losses of the user's own, registered before settings depend on them."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tpsrl import config
from tpsrl.runtime import files

# Setting that names modules of a user's own: where what they register is registered.
_REGISTRIES = {
    "skill_modules": "skills.registry",
    "encoder_modules": "tpsrl.rl.policy.encoder_registry",
    "auxiliary_modules": "tpsrl.rl.learning.auxiliary",
}


def register(values: Mapping[str, Any], skill: str) -> dict[str, Any]:
    """Imports the modules that settings name, and returns those settings with whole paths.

    Whole, so that a training can be resumed from anywhere. One that is resumed says itself which
    modules it needs.

    Args:
        values: settings by key
        skill: the skill that is trained, for the default folder of `resume=auto`

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
    """The folder of the training that `resume` speaks of."""
    if values["resume"] != "auto":
        return files.user_path(values["resume"], "resume")
    return files.user_path(values.get("out") or f"out/train/{values.get('skill', skill)}")
