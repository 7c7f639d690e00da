"""Policies that come with tpsrl: files in `skills/pretrained`, one for each of some skills.

`agent=pretrained` and `skills.SKILL=pretrained` refer to them. The module does not import torch, so
that settings can list the policies fast.
"""

from pathlib import Path

from skills import registry
from tpsrl.errors import UserError

FOLDER = Path(__file__).parents[1] / "pretrained"
WORD = "pretrained"  # instead of a path


def file_name(skill: str, teacher: bool = False) -> str:
    """Returns the file name of a skill's shipped policy, or of its teacher."""
    return f"{_stem(skill, teacher)}.safetensors"


def card_name(skill: str, teacher: bool = False) -> str:
    """Returns the file name of the model card of a skill's shipped policy, or of its teacher."""
    return f"{_stem(skill, teacher)}.md"


def _stem(skill: str, teacher: bool) -> str:
    return f"{skill}.teacher" if teacher else skill


def names(folder: Path | None = None) -> tuple[str, ...]:
    """Returns the skills that have a shipped policy, in `folder` or with tpsrl."""
    where = folder or FOLDER
    return tuple(name for name in registry.names() if (where / file_name(name)).is_file())


def find(skill: str) -> Path:
    """Returns the file of a skill's policy that comes with tpsrl.

    Raises:
        UserError: there is none; the message names the skill, and the skills that have one.
    """
    path = FOLDER / file_name(skill)
    if not path.is_file():
        raise UserError(f"skills.{skill}: {lacking(skill)}; train one with `tpsrl train {skill}`")
    return path


def find_teacher(skill: str) -> Path:
    """Returns the file of the teacher that comes with a skill: a policy of the true state.

    Raises:
        UserError: the skill has no teacher, or its file is missing.
    """
    named = registry.get(skill).teacher
    if named is None:
        raise UserError(
            f"teacher: no teacher of {skill} is shipped; train one with `tpsrl train {skill} "
            "preset=teacher`, and name it by teacher=DIR"
        )
    path = FOLDER / named  # An absolute path is not changed.
    if not path.is_file():
        raise UserError(f"teacher: the file of the teacher of {skill} is missing: {path}")
    return path


def lacking(skill: str) -> str:
    """Returns the message that a skill has no shipped policy, with the skills that have one."""
    return f"no policy for {skill} is shipped (shipped: {', '.join(names()) or 'none'})"
