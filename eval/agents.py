"""Who acts for the skills."""

from skills.base import SkillPolicy
from tpsrl.errors import unknown

# The skills that HAB's plans need, and the reset of the arm between them.
SCRIPTED = ("navigate", "pick", "place", "reset_arm")


def make(agent: str) -> dict[str, SkillPolicy]:
    """The policies of an agent, by the name of the skill.

    Raises:
        UserError: there is no such agent.
    """
    if agent != "scripted":
        raise unknown("agent", agent, ["scripted"])
    from skills import scripted

    return {name: scripted.make(name) for name in SCRIPTED}
