"""Who acts for the skills."""

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from eval.presets import AgentPreset
from eval.running.stand_ins import check_left_out, stand_in, told
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
    """The policies of an agent for a whole plan by the name of the skill, made when asked for.

    A skill that no plan needs may have nobody who acts for it.

    Args:
        agent: who acts
        learned: for some skills the path of the checkpoint that acts instead
        rules: how its plans are carried out; None: by the executor's own, and the agent's
        predicates: of the protocol

    Raises:
        UserError: there is no such checkpoint, or the agent cannot have it, or needs another.
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
        """Those of an evaluation."""
        rules, predicates = settings.rules(), settings.protocol.predicates
        return Policies(settings.agent, settings.learned(), rules, predicates)

    def __getitem__(self, name: str) -> SkillPolicy:
        """Who acts for a skill.

        Raises:
            UserError: nobody does; says what can be done.
        """
        if name not in self._made:
            self._made[name] = stand_in(name, self._rules, self._predicates)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(registry.planned())

    def __len__(self) -> int:
        return len(registry.planned())


def reset_arm() -> SkillPolicy:
    """Who brings the arm back to rest between two skills."""
    from skills.scripted.reset_arm import ScriptedResetArm

    return ScriptedResetArm()


def straight_resets(agent: AgentPreset, learned: Collection[str]) -> dict[str, SkillPolicy]:
    """Who resets the arm before the skills before which it is not done by a plan."""
    from skills.scripted.reset_arm import StraightResetArm

    return dict.fromkeys(agent.resets_straight(learned), StraightResetArm())


def describe(agent: str, learned: Mapping[str, str]) -> dict[str, Any]:
    """What a report says of who acted: "agent" and, by skill, the learned ones ("learned").

    The scripted robot is called "mixed" with some learned skills, and "learned" with all.
    """
    if not learned:
        return {"agent": agent, "learned": {}}
    if agent == SCRIPTED or _is_path(agent):
        actions = (action for spec in registry.specs().values() for action in spec.actions)
        whole_plans = {registry.carrying_out(action).name for action in actions}
        agent = "learned" if learned.keys() >= whole_plans else "mixed"
    return {"agent": agent, "learned": {name: _about(name, path) for name, path in learned.items()}}


def checkpoints(learned: Mapping[str, str]) -> list[Path]:
    """The files by which the learned ones act."""
    return [_file_of(name, path) for name, path in learned.items()]


def describe_preset(
    agent: AgentPreset, learned: Mapping[str, str], acted: Collection[str] | None = None
) -> dict[str, Any]:
    """What a report on scenarios says of who acted.

    Beside what `describe` says: "agent_rules", the preset's entries; "agent_changes", those that
    differ from the preset of its name; and "stand_ins", by skill who acts in the stead of a policy
    that is to be learned, of the skills that have `acted` (None: of all).
    """
    stand_ins, rules = {}, agent.deployed(ExecutionRules())
    if agent.learned == "all":
        stand_ins = {
            name: told(name, rules)
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
    """For one skill by itself, whose agent may be learned: what `describe` takes as `learned`."""
    return {skill: agent} if _is_learned(agent) else {}


def default(skill: str) -> str:
    """Who acts for a skill by itself unless another agent is named."""
    return registry.get(skill).default_agent or SCRIPTED


def make_for_skill(agent: str, skill: str) -> SkillPolicy:
    """The policy of an agent for one skill by itself.

    "scripted", "zero" and "random" act for every skill that has such a one, some have agents of
    their own; a checkpoint acts for the skill it was trained on, and "pretrained" is the one that
    comes with tpsrl.

    Raises:
        UserError: there is no such agent for the skill; names the nearest.
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
        raise unknown(f"agent for {skill}", agent, spec.agent_names())
    return agents.make(agent)


def _is_learned(agent: str) -> bool:
    return agent == pretrained.WORD or _is_path(agent)


def _is_path(agent: str) -> bool:
    if agent == pretrained.WORD:  # whatever folder is called so
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

    # Episodes run one to a process, and a sum is the same whatever machine it is made on.
    torch.set_num_threads(1)
    return LearnedPolicy(skill, path)
