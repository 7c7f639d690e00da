"""What `tpsrl eval` can be told."""

import dataclasses
from typing import Any, Literal

from eval.presets import AgentPreset
from eval.protocols import Protocol
from planner.execution.limits import ExecutionRules
from skills import registry, tables
from tpsrl import config
from tpsrl.world.scenarios import Scenario

_MOST_STRIDE = 1000  # control steps


@dataclasses.dataclass(frozen=True, slots=True)
class RunSettings:
    """What every evaluation can be told; the metadata of the fields is the command's help."""

    protocol: Protocol = config.preset(
        "protocol",
        Protocol,
        "habitat",
        "what counts as success; protocol.KEY=... changes an entry",
        minimum=0,
    )
    engine: Literal["mujoco"] = config.option("mujoco", "what simulates")
    split: Literal["train", "val", "rearranged"] = config.option(
        "val", "apartments: of training, validation, or of training with the fridge elsewhere"
    )
    num_episodes: int | None = config.option(
        None,
        "how many, from the first (default: 20, or all of the file)",
        minimum=1,
        maximum=config.MOST_EPISODES,
    )
    seed: int = config.option(0, "of the generated episodes", minimum=0)
    processes: int = config.option(
        0, "worker processes; 0: one for each core", minimum=0, maximum=config.MOST_PROCESSES
    )
    skills: Any = config.table(
        tables.paths_table,
        "skills.SKILL=PATH lets a checkpoint or training act for a skill, or `pretrained`",
    )
    skill_modules: str | None = config.option(
        None, "modules or files, by commas, that register skills of your own"
    )
    encoder_modules: str | None = config.option(
        None, "modules or files, by commas, that register encoders of your own"
    )
    videos: int = config.option(
        0, "film the first so many episodes", minimum=0, maximum=config.MOST_EPISODES
    )
    video_stride: int = config.option(
        4, "control steps from frame to frame", minimum=1, maximum=_MOST_STRIDE
    )
    measure_view: bool = config.option(
        False, "measure how often what is in the hand blocks the head camera's view"
    )
    view_stride: int = config.option(
        5, "control steps from look to look", minimum=1, maximum=_MOST_STRIDE
    )
    out: str | None = config.option(None, "folder of the results (default: out/NAME)")


class _CarriesOutPlans:
    """What settings with these entries say of how plans are carried out."""

    __slots__ = ()

    agent: AgentPreset
    protocol: Protocol
    skills: Any
    replan: bool
    after_timeout: bool
    actions: str

    def carried_out_by(self) -> dict[str, str]:
        """The skills that are named for actions of the planning domain.

        Raises:
            UserError: it does not read so, or a skill cannot carry out its action.
        """
        return registry.choices(self.actions)

    def learned(self) -> dict[str, str]:
        """The skills that a trained policy acts for, and its path."""
        return self.agent.policies(self.skills.given())

    def rules(self) -> ExecutionRules:
        """How plans are carried out: by the protocol's rules and the agent's.

        Raises:
            UserError: one names an action or skill that there is not.
        """
        own = self.protocol.rules(self.replan, self.carried_out_by(), self.after_timeout)
        return self.agent.deployed(own)


@dataclasses.dataclass(frozen=True, slots=True)
class AllSettings(_CarriesOutPlans, RunSettings):
    """The settings of an evaluation of every scenario."""

    agent: AgentPreset = config.preset(
        "agent",
        AgentPreset,
        "scripted",
        f"who acts, and how it is deployed: {', '.join(config.preset_names('agent'))}",
        minimum=0,
    )
    replan: bool = config.option(False, "after a failure plan again from what is seen")
    after_timeout: bool = config.option(
        True, "where a timeout ends an episode, run on to see what would have come"
    )
    actions: str = config.option(
        "", "ACTION:SKILL, by commas: the skill that carries out an action, where several can"
    )
    analysis_episodes: int = config.option(
        200, "of the first so many analyse the handoffs (docs/handoffs.md); 0: of none", minimum=0
    )
    analysis_steps: int | None = config.option(
        None,
        "control steps that repaired continuations may take (default: four times the evaluation's)",
        minimum=0,
    )
    analysis_players: int = config.option(
        3, "types of handoffs whose repairs are told apart, the rest together", minimum=1, maximum=6
    )


@dataclasses.dataclass(frozen=True, slots=True)
class EvalSettings(AllSettings):
    """The settings of an evaluation of one scenario."""

    scenario: Scenario = config.preset("scenario", Scenario, None, "what to do", files=True)
    episodes: str | None = config.option(None, "a dataset file (.jsonl.gz) to use instead")
    episode: str | None = config.option(
        None, "run this one alone, by its id or number; without an analysis"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class SkillsSettings(RunSettings):
    """The settings of an evaluation of every skill by itself."""

    agent: str = config.option(
        "",
        "who acts: scripted (if there is one), zero, random, pretrained, or the path of a "
        "checkpoint or training; a skill may have agents of its own",
    )
    num_objects: int | None = config.option(
        None,
        "objects of an episode, 1 to 30 (default: as in the skill's dataset)",
        minimum=1,
        maximum=30,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class SkillSettings(SkillsSettings):
    """The settings of an evaluation of one skill by itself."""

    skill: str = config.option("", "which one")
    blind: str | None = config.option(
        None,
        "sensors that show the policy another run, to tell whether it looks: depth, laser, or both "
        "by commas",
    )
    starts: str | None = config.option(
        None,
        "instead of the skill's own: a file of recorded start states, bank:DIR/SKILL, along:DIR, "
        "rearranged, or a mixture such as own:0.5,bank:DIR/SKILL:0.5",
    )


@dataclasses.dataclass(frozen=True, slots=True)
class BankSettings(_CarriesOutPlans):
    """The settings of a bank of exit states; the keys of an evaluation that make sense for it."""

    scenario: Scenario = config.preset("scenario", Scenario, None, "what to do", files=True)
    protocol: Protocol = config.preset(
        "protocol",
        Protocol,
        "habitat",
        "when skills and episodes end; protocol.KEY=... changes an entry",
        minimum=0,
    )
    engine: Literal["mujoco"] = config.option("mujoco", "what simulates")
    split: Literal["train", "val", "rearranged"] = config.option(
        "train", "apartments: of training, validation, or of training with the fridge elsewhere"
    )
    num_episodes: int | None = config.option(
        None,
        "how many, from the first (default: 20, or all of the file)",
        minimum=1,
        maximum=config.MOST_EPISODES,
    )
    seed: int = config.option(0, "of the generated episodes", minimum=0)
    episodes: str | None = config.option(None, "a dataset file (.jsonl.gz) to use instead")
    processes: int = config.option(
        0, "worker processes; 0: one for each core", minimum=0, maximum=config.MOST_PROCESSES
    )
    agent: AgentPreset = config.preset(
        "agent",
        AgentPreset,
        "scripted",
        f"who acts, and how it is deployed: {', '.join(config.preset_names('agent'))}",
        minimum=0,
    )
    skills: Any = config.table(
        tables.paths_table,
        "skills.SKILL=PATH lets a checkpoint or training act for a skill, or `pretrained`",
    )
    actions: str = config.option(
        "", "ACTION:SKILL, by commas: the skill that carries out an action, where several can"
    )
    replan: bool = config.option(False, "after a failure plan again from what is seen")
    after_timeout: bool = config.option(
        True, "where a timeout ends an episode, run on; what comes then is kept too"
    )
    only: Literal["all", "succeeded", "failed"] = config.option(
        "all", "keep the states in which the skill before had succeeded, or failed"
    )
    along: int = config.option(
        0,
        "of each run of a skill so many states on its way are kept, too, for "
        "start_states=along:DIR/SKILL",
        minimum=0,
        maximum=_MOST_STRIDE,
    )
    skill_modules: str | None = config.option(
        None, "modules or files, by commas, that register skills of your own"
    )
    encoder_modules: str | None = config.option(
        None, "modules or files, by commas, that register encoders of your own"
    )
    out: str | None = config.option(None, "folder of the bank (default: out/bank/SCENARIO)")
