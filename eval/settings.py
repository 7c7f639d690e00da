"""Settings of `tpsrl eval` and `tpsrl bank`."""

import dataclasses
from typing import Any, Literal

from eval.presets import AgentPreset
from eval.protocols import Protocol
from planner import domains
from planner.execution.limits import ExecutionRules
from skills import registry, tables
from tpsrl import config
from tpsrl.runtime import files
from tpsrl.sim.engines import EngineName
from tpsrl.sim.habitat.settings import HabitatSettings
from tpsrl.world.scenarios import Scenario

_MOST_STRIDE = 1000  # control steps


@dataclasses.dataclass(frozen=True, slots=True)
class RunSettings:
    """Settings shared by all evaluations; the metadata of the fields is the command's help."""

    protocol: Protocol = config.preset(
        "protocol",
        Protocol,
        "habitat",
        "evaluation protocol; protocol.KEY=... overrides an entry",
        minimum=0,
        files=True,
    )
    engine: EngineName = config.option("mujoco", "simulation engine")
    habitat: HabitatSettings = config.part(
        HabitatSettings, "paths and options of the engine habitat"
    )
    split: Literal["train", "val", "rearranged"] = config.option(
        "val", "split of the apartments: train, val, or rearranged (train with furniture moved)"
    )
    num_episodes: int | None = config.option(
        None,
        "number of episodes, counted from the first (default: 20, or the whole file)",
        minimum=1,
        maximum=config.MOST_EPISODES,
    )
    seed: int = config.option(0, "seed of episode generation", minimum=0)
    processes: int = config.option(
        0, "number of worker processes; 0: one per core", minimum=0, maximum=config.MOST_PROCESSES
    )
    skills: Any = config.table(
        tables.paths_table,
        "policy of each skill: skills.SKILL=PATH of a checkpoint or training, `pretrained`, or "
        "FILE.py:CLASS of your own",
    )
    skill_modules: str | None = config.option(
        None, "comma-separated modules or files that register your own skills"
    )
    encoder_modules: str | None = config.option(
        None, "comma-separated modules or files that register your own encoders"
    )
    videos: int = config.option(
        0,
        "number of episodes to film, counted from the first",
        minimum=0,
        maximum=config.MOST_EPISODES,
    )
    video_stride: int = config.option(
        4, "control steps between video frames", minimum=1, maximum=_MOST_STRIDE
    )
    measure_view: bool = config.option(
        False, "measure how often the held object blocks the head camera"
    )
    view_stride: int = config.option(
        5, "control steps between view measurements", minimum=1, maximum=_MOST_STRIDE
    )
    out: str | None = config.option(None, "output folder (default: out/NAME)")
    replace: bool = config.option(
        False, "replace an evaluation with other settings in the output folder"
    )


class _CarriesOutPlans:
    """Base of settings with an agent, a protocol and options of plan execution."""

    __slots__ = ()

    agent: AgentPreset
    protocol: Protocol
    skills: Any
    replan: bool
    after_timeout: bool
    actions: str
    domain: str

    def carried_out_by(self) -> dict[str, str]:
        """Returns the chosen skill of each action of the planning domain named in `actions`.

        Raises:
            UserError: `actions` cannot be parsed, or a skill cannot carry out its action.
        """
        return registry.choices(self.actions)

    def learned(self) -> dict[str, str]:
        """Returns the path of the trained policy of each skill that has one."""
        return self.agent.policies(self.skills.given())

    def rules(self) -> ExecutionRules:
        """Returns the rules of plan execution: those of the protocol and of the agent.

        Raises:
            UserError: a rule names an action or skill that does not exist.
        """
        own = self.protocol.rules(self.replan, self.carried_out_by(), self.after_timeout)
        return self.agent.deployed(dataclasses.replace(own, domain=domains.find(self.domain)))


@dataclasses.dataclass(frozen=True, slots=True)
class AllSettings(_CarriesOutPlans, RunSettings):
    """Settings of an evaluation of every scenario."""

    agent: AgentPreset = config.preset(
        "agent",
        AgentPreset,
        "scripted",
        f"policies and their deployment: {', '.join(config.preset_names('agent'))}",
        minimum=0,
        files=True,
    )
    replan: bool = config.option(False, "replan from the observed state after a failure")
    after_timeout: bool = config.option(
        True, "continue after a timeout that ends the episode, to report both readings of timeouts"
    )
    actions: str = config.option(
        "", "comma-separated ACTION:SKILL pairs, for actions that several skills can carry out"
    )
    domain: str = config.option(
        domains.DEFAULT, "planning domain; habitat: the benchmark's own; or a PDDL file"
    )
    analysis_episodes: int = config.option(
        200,
        "number of episodes in the handoff analysis, counted from the first; 0: no analysis",
        minimum=0,
    )
    analysis_steps: int | None = config.option(
        None,
        "budget of control steps for repaired continuations (default: four times the evaluation's)",
        minimum=0,
    )
    analysis_players: int = config.option(
        3, "number of handoff types whose repairs are attributed separately", minimum=1, maximum=6
    )


@dataclasses.dataclass(frozen=True, slots=True)
class EvalSettings(AllSettings):
    """Settings of an evaluation of one scenario."""

    scenario: Scenario = config.preset(
        "scenario", Scenario, None, "name or file of the scenario", files=True
    )
    episodes: str | None = config.option(
        None, "episode dataset (.jsonl.gz) to use instead of generated episodes"
    )
    skip_invalid: bool = config.option(
        False, "leave out episodes of the file that cannot be run, instead of ending"
    )
    episode: str | None = config.option(
        None, "run only this episode, by its id or number; no handoff analysis"
    )
    plan: str | None = config.option(
        None, "plan file to follow instead of searching, with lines (ACTION ENTITY ...)"
    )

    def rules(self) -> ExecutionRules:
        """Returns the rules of `_CarriesOutPlans.rules`, with the file of a given plan."""
        found = _CarriesOutPlans.rules(self)
        if self.plan is None:
            return found
        return dataclasses.replace(found, plan_file=files.user_path(self.plan, "plan"))


@dataclasses.dataclass(frozen=True, slots=True)
class SkillsSettings(RunSettings):
    """Settings of an evaluation of every skill in isolation."""

    agent: str = config.option(
        "",
        "agent: scripted, zero, random, pretrained, or the path of a checkpoint or training; "
        "some skills have further agents",
    )
    num_objects: int | None = config.option(
        None,
        "number of objects, 1 to 30 (default: as in the skill's dataset)",
        minimum=1,
        maximum=30,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class SkillSettings(SkillsSettings):
    """Settings of an evaluation of one skill in isolation."""

    skill: str = config.option("", "name of the skill")
    episode: str | None = config.option(
        None, "run only this episode, by its id or number (of a mixture: of its first 20)"
    )
    blind: str | None = config.option(
        None,
        "comma-separated sensors (depth, laser, head_rgb, hand_depth, ...) replaced by those of "
        "another run, to test whether the policy uses them",
    )
    starts: str | None = config.option(
        None,
        "start states: own (default), a file, bank:DIR/SKILL, along:DIR, rearranged, or a "
        "mixture such as own:0.5,bank:DIR/SKILL:0.5",
    )


@dataclasses.dataclass(frozen=True, slots=True)
class BankSettings(_CarriesOutPlans):
    """Settings of a bank of exit states: the subset of an evaluation's that applies."""

    scenario: Scenario = config.preset(
        "scenario", Scenario, None, "name or file of the scenario", files=True
    )
    protocol: Protocol = config.preset(
        "protocol",
        Protocol,
        "habitat",
        "evaluation protocol; protocol.KEY=... overrides an entry",
        minimum=0,
        files=True,
    )
    engine: EngineName = config.option("mujoco", "simulation engine")
    habitat: HabitatSettings = config.part(
        HabitatSettings, "paths and options of the engine habitat"
    )
    split: Literal["train", "val", "rearranged"] = config.option(
        "train", "split of the apartments: train, val, or rearranged (train with furniture moved)"
    )
    num_episodes: int | None = config.option(
        None,
        "number of episodes, counted from the first (default: 20, or the whole file)",
        minimum=1,
        maximum=config.MOST_EPISODES,
    )
    seed: int = config.option(0, "seed of episode generation", minimum=0)
    episodes: str | None = config.option(
        None, "episode dataset (.jsonl.gz) to use instead of generated episodes"
    )
    skip_invalid: bool = config.option(
        False, "leave out episodes of the file that cannot be run, instead of ending"
    )
    processes: int = config.option(
        0, "number of worker processes; 0: one per core", minimum=0, maximum=config.MOST_PROCESSES
    )
    agent: AgentPreset = config.preset(
        "agent",
        AgentPreset,
        "scripted",
        f"policies and their deployment: {', '.join(config.preset_names('agent'))}",
        minimum=0,
        files=True,
    )
    skills: Any = config.table(
        tables.paths_table,
        "policy of each skill: skills.SKILL=PATH of a checkpoint or training, or `pretrained`",
    )
    actions: str = config.option(
        "", "comma-separated ACTION:SKILL pairs, for actions that several skills can carry out"
    )
    domain: str = config.option(
        domains.DEFAULT, "planning domain; habitat: the benchmark's own; or a PDDL file"
    )
    replan: bool = config.option(False, "replan from the observed state after a failure")
    after_timeout: bool = config.option(
        True, "continue after a timeout that ends the episode, and keep the later states too"
    )
    only: Literal["all", "succeeded", "failed"] = config.option(
        "all", "keep all states, or only those after a skill that succeeded or failed"
    )
    along: int = config.option(
        0,
        "number of states to keep along each skill's run, for start_states=along:DIR/SKILL",
        minimum=0,
        maximum=_MOST_STRIDE,
    )
    skill_modules: str | None = config.option(
        None, "comma-separated modules or files that register your own skills"
    )
    encoder_modules: str | None = config.option(
        None, "comma-separated modules or files that register your own encoders"
    )
    out: str | None = config.option(None, "output folder of the bank (default: out/bank/SCENARIO)")
