"""What `tpsrl eval` can be told."""

import dataclasses
from typing import Literal

from eval.protocols import Protocol
from tpsrl import config
from tpsrl.world.scenarios import Scenario


@dataclasses.dataclass(frozen=True, slots=True)
class LearnedSkills:
    """For each skill the checkpoint, or the folder of a training, that acts for it."""

    navigate: str | None = None
    pick: str | None = None
    place: str | None = None
    open_fridge: str | None = None
    close_fridge: str | None = None
    open_drawer: str | None = None
    close_drawer: str | None = None

    def given(self) -> dict[str, str]:
        """The skills that have one."""
        return {name: path for name, path in dataclasses.asdict(self).items() if path is not None}


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
    split: Literal["train", "val"] = config.option("val", "apartments of training or validation")
    num_episodes: int | None = config.option(
        None, "how many, from the first (default: 20, or all of the file)", minimum=1
    )
    seed: int = config.option(0, "of the generated episodes", minimum=0)
    processes: int = config.option(0, "worker processes; 0: one for each core", minimum=0)
    skills: LearnedSkills = config.part(
        LearnedSkills, "skills.SKILL=PATH lets a checkpoint or training act for a skill"
    )
    videos: int = config.option(0, "film the first so many episodes", minimum=0)
    video_stride: int = config.option(4, "control steps from frame to frame", minimum=1)
    out: str | None = config.option(None, "folder of the results (default: out/NAME)")


@dataclasses.dataclass(frozen=True, slots=True)
class AllSettings(RunSettings):
    """The settings of an evaluation of every scenario."""

    agent: Literal["scripted"] = config.option("scripted", "who acts for the skills")
    replan: bool = config.option(False, "after a failure plan again from what is seen")


@dataclasses.dataclass(frozen=True, slots=True)
class EvalSettings(AllSettings):
    """The settings of an evaluation of one scenario."""

    scenario: Scenario = config.preset("scenario", Scenario, None, "what to do", files=True)
    episodes: str | None = config.option(None, "a dataset file (.jsonl.gz) to use instead")


@dataclasses.dataclass(frozen=True, slots=True)
class SkillsSettings(RunSettings):
    """The settings of an evaluation of every skill by itself."""

    agent: str = config.option(
        "scripted", "who acts: scripted, zero, random, or the path of a checkpoint or training"
    )
    num_objects: int = config.option(30, "objects of an episode, 1 to 30", minimum=1, maximum=30)


@dataclasses.dataclass(frozen=True, slots=True)
class SkillSettings(SkillsSettings):
    """The settings of an evaluation of one skill by itself."""

    skill: str = config.option("", "which one")
    starts: str | None = config.option(
        None, "a file of recorded start states, used instead of split, seed and num_objects"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class PointNavEvalSettings(SkillSettings):
    """The settings of an evaluation of PointNav, which has its own agents."""

    agent: str = config.option(
        "shortest_path", "who acts: shortest_path, goal_follower, forward_only, random, zero"
    )
