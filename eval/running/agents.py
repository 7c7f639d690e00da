"""Who acts for the skills."""

import os
from collections.abc import Mapping
from typing import Any

from skills.core.interface import SkillPolicy
from skills.registry import names
from tpsrl.errors import unknown

POINTNAV = "pointnav"


def make(agent: str, learned: Mapping[str, str]) -> dict[str, SkillPolicy]:
    """The policies of an agent for a whole plan, by the name of the skill.

    Args:
        agent: "scripted"
        learned: for some skills the path of the checkpoint that acts instead

    Raises:
        UserError: there is no such agent or checkpoint.
    """
    if agent != "scripted":
        raise unknown("agent", agent, ["scripted"])
    from skills import scripted

    # The arm is reset between skills.
    acting = {n: scripted.make(n) for n in (*names(), "reset_arm") if n not in learned}
    return acting | {name: _learned(name, path) for name, path in learned.items()}


def describe(agent: str, learned: Mapping[str, str]) -> dict[str, Any]:
    """What a report says of who acted: "agent" and, by skill, the learned ones ("learned")."""
    from skills.policies import learned as policies

    if learned:
        agent = "learned" if learned.keys() >= set(names()) else "mixed"
    return {"agent": agent, "learned": {n: policies.about(n, p) for n, p in learned.items()}}


def learned_alone(agent: str, skill: str) -> dict[str, str]:
    """For one skill by itself, whose agent may be a path: what `describe` takes as `learned`."""
    return {skill: agent} if _is_path(agent) else {}


def make_for_skill(agent: str, skill: str) -> SkillPolicy:
    """The policy of an agent for one skill by itself.

    "scripted", "zero" and "random" act for every skill of HAB, PointNav has its own
    (`skills.pointnav.baselines`) and "zero"; and a checkpoint acts for the skill it was trained on.

    Raises:
        UserError: there is no such agent for the skill; names the nearest.
    """
    from skills import scripted
    from skills.pointnav import baselines
    from skills.policies import agents

    if _is_path(agent):
        return _learned(skill, agent)
    if skill == POINTNAV:
        known = {*baselines.names(), "zero"}
        makers = {name: baselines.make for name in baselines.names()} | {"zero": agents.make}
    else:
        known = {*agents.names(), "scripted"}
        makers = dict.fromkeys(agents.names(), agents.make)
    if agent not in known:
        raise unknown(f"agent for {skill}", agent, known)
    return scripted.make(skill) if agent == "scripted" else makers[agent](agent)


def _is_path(agent: str) -> bool:
    return os.sep in agent or agent.endswith(".safetensors") or os.path.isdir(agent)


def _learned(skill: str, path: str) -> SkillPolicy:
    import torch

    from skills.policies.learned import LearnedPolicy

    # Episodes run one to a process, and a sum is the same whatever machine it is made on.
    torch.set_num_threads(1)
    return LearnedPolicy(skill, path)
