"""Which skills there are, by name: HAB's seven, and PointNav beside them."""

from skills.articulated.task import CloseDrawer, CloseFridge, OpenDrawer, OpenFridge
from skills.core.task import SkillTask
from skills.navigate.task import Navigate
from skills.pick.task import Pick
from skills.place.task import Place
from skills.pointnav.task import PointNav
from tpsrl.errors import unknown

POINTNAV = "pointnav"

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


_TASKS: dict[str, SkillTask] = {**_SKILLS, POINTNAV: PointNav()}


def names() -> tuple[str, ...]:
    """The names of HAB's seven skills, which plans are made of."""
    return tuple(_SKILLS)


def get(name: str) -> SkillTask:
    """The definition of a skill, or of PointNav.

    Raises:
        UserError: there is none of that name; names the nearest.
    """
    if name not in _TASKS:
        raise unknown("skill", name, _TASKS)
    return _TASKS[name]
