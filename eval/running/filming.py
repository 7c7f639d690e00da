"""Evaluations whose episodes are filmed."""

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
    """Settings of an evaluation that films every episode, one unless told otherwise."""
    one = getattr(settings, "episode", None) is not None
    count = settings.num_episodes or (1 if one else max(1, settings.videos))
    name = settings.scenario.name if hasattr(settings, "scenario") else word
    # Who wants to see an episode does not want to wait for its analysis.
    fewer = {"analysis_episodes": 0} if hasattr(settings, "analysis_episodes") else {}
    return dataclasses.replace(
        settings,
        num_episodes=count,
        videos=settings.videos or count,
        out=settings.out or f"out/videos/{name}",
        **fewer,
    )


def with_newest(settings: Any) -> Any:
    """The settings with the newest checkpoint of each training that they name, as a copy in `out`.

    A training that runs replaces its checkpoints; every process and episode acts by the copy.

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
    """A copy of the newest policy of a training; None where the path is no folder of one."""
    folder = files.user_path(path, field)
    if path in ("", WORD) or not folder.is_dir():
        return None
    newest = checkpoint.newest(folder, field)
    if newest is None:
        return None
    with renamed(f"skills.{skill}", field):
        learned.load(skill, newest.path)  # or the copy would be of another skill
    out = files.check_writable(settings.out)
    path_of_copy = out / _POLICIES / f"{skill}.safetensors"
    with locks.hold(out):  # by its copy another process may be acting
        checkpoint.save_policy(newest, path_of_copy)
    print(f"{skill}: {newest.path}, {newest.steps:,} steps")
    return path_of_copy
