"""Which skills there are, by name."""

from skills.base import Skill
from skills.navigate import Navigate
from skills.pick import Pick
from skills.place import Place
from tpsrl.errors import unknown

_SKILLS: dict[str, Skill] = {skill.name: skill for skill in (Navigate(), Pick(), Place())}


def names() -> tuple[str, ...]:
    """The names of all skills."""
    return tuple(_SKILLS)


def get(name: str) -> Skill:
    """The definition of a skill.

    Raises:
        UserError: there is none of that name; names the nearest.
    """
    if name not in _SKILLS:
        raise unknown("skill", name, _SKILLS)
    return _SKILLS[name]
