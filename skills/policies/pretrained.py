"""The policies that come with tpsrl: one file a skill in `skills/pretrained`, for some skills.

`agent=pretrained` and `skills.SKILL=pretrained` act by them. Imports no torch, so that settings can
ask which there are.
"""

from pathlib import Path

from skills import registry
from tpsrl.errors import UserError

FOLDER = Path(__file__).parents[1] / "pretrained"
WORD = "pretrained"  # in the place of a path


def file_name(skill: str, teacher: bool = False) -> str:
    """The name of the file of a skill's shipped policy, or of its teacher."""
    return f"{_stem(skill, teacher)}.safetensors"


def card_name(skill: str, teacher: bool = False) -> str:
    """The name of the model card beside it."""
    return f"{_stem(skill, teacher)}.md"


def _stem(skill: str, teacher: bool) -> str:
    return f"{skill}.teacher" if teacher else skill


def names(folder: Path | None = None) -> tuple[str, ...]:
    """The skills that have a shipped policy, with tpsrl or in another folder."""
    where = folder or FOLDER
    return tuple(name for name in registry.names() if (where / file_name(name)).is_file())


def find(skill: str) -> Path:
    """The file of a skill's policy that comes with tpsrl.

    Raises:
        UserError: it comes without one; names the skill, and those that have one.
    """
    path = FOLDER / file_name(skill)
    if not path.is_file():
        raise UserError(f"skills.{skill}: {lacking(skill)}; train one with `tpsrl train {skill}`")
    return path


def find_teacher(skill: str) -> Path:
    """The file of the teacher that comes with a skill: a policy of the true state.

    Raises:
        UserError: the skill has none, or the file is not there.
    """
    named = registry.get(skill).teacher
    if named is None:
        raise UserError(
            f"teacher: none comes with {skill}; `tpsrl train {skill} preset=teacher` makes one, "
            "teacher=DIR names it"
        )
    path = FOLDER / named  # a whole path stays what it is
    if not path.is_file():
        raise UserError(f"teacher: that of {skill} is not there: {path}")
    return path


def lacking(skill: str) -> str:
    """Says that a skill has no shipped policy, and which have one."""
    return f"no policy for {skill} comes with tpsrl (there are: {', '.join(names()) or 'none'})"
