"""Evaluations whose episodes are filmed (`tpsrl video`)."""

import dataclasses
from pathlib import Path
from typing import Any

from skills.policies import learned
from skills.policies.pretrained import WORD
from tpsrl.errors import renamed
from tpsrl.rl.run import checkpoint
from tpsrl.runtime import files, locks

_POLICIES = "policies"


def filmed(settings: Any, word: str | None) -> Any:
    """Returns settings that film every episode; by default a single one."""
    one = getattr(settings, "episode", None) is not None
    count = settings.num_episodes or (1 if one else max(1, settings.videos))
    name = settings.scenario.name if hasattr(settings, "scenario") else word
    # Users who want a video should not have to wait for the handoff analysis.
    fewer = {"analysis_episodes": 0} if hasattr(settings, "analysis_episodes") else {}
    return dataclasses.replace(
        settings,
        num_episodes=count,
        videos=settings.videos or count,
        out=settings.out or f"out/videos/{name}",
        replace=settings.replace or settings.out in (None, f"out/videos/{name}"),
        **fewer,
    )


def with_newest(settings: Any) -> Any:
    """Copies the newest checkpoint of each training that the settings name into `out`.

    A training in progress replaces its checkpoints; with the copy all processes and episodes use
    the same policy.

    Returns:
        The settings with the paths of the copies.

    Raises:
        UserError: a checkpoint is damaged, or the copy cannot be written.
    """
    given, skill = settings.skills.given(), getattr(settings, "skill", "")
    fields = {name: f"skills.{name}" for name in given}
    if skill:
        given = {skill: settings.agent, **given}
        fields.setdefault(skill, "agent")
    copies = {name: _copy(settings, name, path, fields[name]) for name, path in given.items()}
    found = {name: str(path) for name, path in copies.items() if path is not None}
    return dataclasses.replace(settings, skills=dataclasses.replace(settings.skills, **found))


def _copy(settings: Any, skill: str, path: str, field: str) -> Path | None:
    """Copies the newest policy of a training; returns None if the path is not one of a training."""
    folder = files.user_path(path, field)
    if path in ("", WORD) or not folder.is_dir():
        return None
    newest = checkpoint.newest(folder, field)
    if newest is None:
        return None
    with renamed(f"skills.{skill}", field):
        learned.load(skill, newest.path)  # refuses a checkpoint of another skill
    out = files.check_writable(settings.out)
    path_of_copy = out / _POLICIES / f"{skill}.safetensors"
    with locks.hold(out):  # another process may be using its copy
        checkpoint.save_policy(newest, path_of_copy)
    print(f"{skill}: {newest.path}, {newest.steps:,} steps")
    return path_of_copy
