"""Which skills there are, by name."""

from skills.articulated import CloseDrawer, CloseFridge, OpenDrawer, OpenFridge
from skills.navigate import Navigate
from skills.pick import Pick
from skills.place import Place
from skills.task import SkillTask
from tpsrl.errors import unknown

_SKILLS: dict[str, SkillTask] = {
    skill.name: skill
    for skill in (
        Navigate(),
        Pick(),
        Place(),
        OpenFridge(),
        CloseFridge(),
        OpenDrawer(),
        CloseDrawer(),
    )
}


def names() -> tuple[str, ...]:
    """The names of all skills."""
    return tuple(_SKILLS)


def get(name: str) -> SkillTask:
    """The definition of a skill.

    Raises:
        UserError: there is none of that name; names the nearest.
    """
    if name not in _SKILLS:
        raise unknown("skill", name, _SKILLS)
    return _SKILLS[name]
