"""Policies of an evaluation, by skill."""

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from eval.presets import AgentPreset
from eval.running.stand_ins import check_left_out, description, stand_in
from eval.settings import AllSettings, BankSettings
from planner.execution.limits import ExecutionRules
from planner.predicates import PredicateThresholds
from skills import registry
from skills.core.interface import SkillPolicy
from skills.policies import own, pretrained
from skills.spec import resolve
from tpsrl import config
from tpsrl.errors import unknown

SCRIPTED = "scripted"


class Policies(Mapping[str, SkillPolicy]):
    """Policies of an agent for a whole plan, by skill; scripted ones are made on first access.

    A skill that no plan needs may lack a policy.

    Args:
        agent: preset that determines the policies
        learned: path of the checkpoint of each skill with a trained policy
        rules: of plan execution; None: the executor's defaults with those of the agent
        predicates: thresholds of the protocol; None: the defaults

    Raises:
        UserError: a checkpoint does not exist, the agent cannot use it, or the agent needs another.
    """

    def __init__(
        self,
        agent: AgentPreset,
        learned: Mapping[str, str],
        rules: ExecutionRules | None = None,
        predicates: PredicateThresholds | None = None,
    ) -> None:
        agent.check(learned)
        self._rules = agent.deployed(ExecutionRules()) if rules is None else rules
        self._predicates = predicates or PredicateThresholds()
        if any(name not in learned for name in agent.acting()):
            check_left_out(self._rules)
        self._made = {name: _learned(name, path) for name, path in learned.items()}

    @staticmethod
    def of(settings: AllSettings | BankSettings) -> "Policies":
        """Returns the policies of an evaluation."""
        rules, predicates = settings.rules(), settings.protocol.predicates
        return Policies(settings.agent, settings.learned(), rules, predicates)

    def __getitem__(self, name: str) -> SkillPolicy:
        """Returns the policy of a skill.

        Raises:
            UserError: the skill has no policy; the message names a remedy.
        """
        if name not in self._made:
            self._made[name] = stand_in(name, self._rules, self._predicates)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(registry.planned())

    def __len__(self) -> int:
        return len(registry.planned())


def reset_arm() -> SkillPolicy:
    """Returns the policy that resets the arm between two skills."""
    from skills.scripted.reset_arm import ScriptedResetArm

    return ScriptedResetArm()


def straight_resets(agent: AgentPreset, learned: Collection[str]) -> dict[str, SkillPolicy]:
    """Returns a reset policy without planning for each skill before which it is used."""
    from skills.scripted.reset_arm import StraightResetArm

    return dict.fromkeys(agent.resets_straight(learned), StraightResetArm())


def describe(agent: str, learned: Mapping[str, str]) -> dict[str, Any]:
    """Returns the policies for a report: "agent" and, by skill, the trained ones ("learned").

    The agent is "learned" if all skills that act are trained policies, "mixed" if some are.
    """
    if not learned:
        return {"agent": agent, "learned": {}}
    if _is_path(agent):  # one skill, by this policy
        agent = "learned"
    elif agent == SCRIPTED:
        actions = (action for spec in registry.specs().values() for action in spec.actions)
        whole_plans = {registry.carrying_out(action).name for action in actions}
        agent = "learned" if learned.keys() >= whole_plans else "mixed"
    return {"agent": agent, "learned": {name: _about(name, path) for name, path in learned.items()}}


def checkpoints(learned: Mapping[str, str]) -> list[Path]:
    """Returns the files of the trained policies."""
    return [_file_of(name, path) for name, path in learned.items()]


def describe_preset(
    agent: AgentPreset, learned: Mapping[str, str], acted: Collection[str] | None = None
) -> dict[str, Any]:
    """Returns the policies for a report on scenarios.

    Args:
        agent: preset of the evaluation
        learned: path of each trained policy, by skill
        acted: skills that ran; None: all

    Returns:
        The entries of `describe`, with "agent_rules" (all entries of the preset), "agent_changes"
        (entries that differ from the preset of its name) and "stand_ins" (descriptions of the
        scripted policies that replaced missing checkpoints, by skill, of the skills in `acted`).
    """
    stand_ins, rules = {}, agent.deployed(ExecutionRules())
    if agent.learned == "all":
        stand_ins = {
            name: description(name, rules)
            for name in agent.acting()
            if name not in learned and (acted is None or name in acted)
        }
    return {
        **describe(agent.name, learned),
        "agent_rules": config.flat(agent),
        "agent_changes": agent.changes(),
        "stand_ins": stand_ins,
    }


def learned_alone(agent: str, skill: str) -> dict[str, str]:
    """Returns the `learned` argument of `describe` for one skill evaluated in isolation."""
    return {skill: agent} if _is_learned(agent) else {}


def default(skill: str) -> str:
    """Returns the agent of a skill evaluated in isolation, unless another one is set."""
    return registry.get(skill).default_agent or SCRIPTED


def make_for_skill(agent: str, skill: str) -> SkillPolicy:
    """Returns the policy of an agent for one skill evaluated in isolation.

    "scripted", "zero" and "random" are available for every skill that supports them; some skills
    have further agents. A checkpoint is valid for the skill that it was trained on, and
    "pretrained" is the policy shipped with tpsrl.

    Raises:
        UserError: the skill has no agent of this name; names the nearest.
    """
    from skills.policies import agents

    if _is_learned(agent):
        return _learned(skill, agent)
    spec = registry.get(skill)
    if agent in spec.agents:
        policy: SkillPolicy = resolve(spec.agents[agent])()
        return policy
    if agent == SCRIPTED and (spec.scripted is not None or not spec.agents):
        return spec.make_scripted()
    if agent not in agents.names():
        shipped = (pretrained.WORD,) if skill in pretrained.names() else ()
        raise unknown(f"agent for {skill}", agent, (*spec.agent_names(), *shipped))
    return agents.make(agent)


def _is_learned(agent: str) -> bool:
    return agent == pretrained.WORD or _is_path(agent)


def _is_path(agent: str) -> bool:
    if agent == pretrained.WORD:  # even if a folder has this name
        return False
    return (
        own.is_own(agent)
        or os.sep in agent
        or agent.endswith((".safetensors", ".py"))
        or os.path.isdir(agent)
    )


def _about(skill: str, path: str) -> dict[str, Any]:
    if own.is_own(path):
        return own.about(skill, path)
    from skills.policies import learned

    return learned.about(skill, path)


def _file_of(skill: str, path: str) -> Path:
    if own.is_own(path):
        return own.file_of(skill, path)
    from skills.policies import learned

    return learned.find(skill, path)


def _learned(skill: str, path: str) -> SkillPolicy:
    if own.is_own(path):
        return own.OwnPolicy(skill, path)
    import torch

    from skills.policies.learned import LearnedPolicy

    # Each process runs one episode at a time; with one thread sums do not depend on the machine.
    torch.set_num_threads(1)
    return LearnedPolicy(skill, path)
