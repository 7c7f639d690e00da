"""Who acts for the skills."""

from skills.base import SkillPolicy
from skills.registry import names
from tpsrl.errors import unknown

POINTNAV = "pointnav"


def make(agent: str) -> dict[str, SkillPolicy]:
    """The policies of an agent for a whole plan, by the name of the skill.

    Raises:
        UserError: there is no such agent.
    """
    if agent != "scripted":
        raise unknown("agent", agent, ["scripted"])
    from skills import scripted

    # The arm is reset between skills.
    return {name: scripted.make(name) for name in (*names(), "reset_arm")}


def make_for_skill(agent: str, skill: str) -> SkillPolicy:
    """The policy of an agent for one skill by itself.

    "scripted", "zero" and "random" act for every skill of HAB; PointNav has its own
    (`skills.pointnav.baselines`), and "zero".

    Raises:
        UserError: there is no such agent for the skill; names the nearest.
    """
    from skills import agents, scripted
    from skills.pointnav import baselines

    if skill == POINTNAV:
        known = {*baselines.names(), "zero"}
        makers = {name: baselines.make for name in baselines.names()} | {"zero": agents.make}
    else:
        known = {*agents.names(), "scripted"}
        makers = dict.fromkeys(agents.names(), agents.make)
    if agent not in known:
        raise unknown(f"agent for {skill}", agent, known)
    return scripted.make(skill) if agent == "scripted" else makers[agent](agent)
