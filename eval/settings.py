"""What `tpsrl eval` can be told."""

import dataclasses
from typing import Literal

from eval.protocols import Protocol
from tpsrl import config


@dataclasses.dataclass(frozen=True, slots=True)
class Scenario:
    """A task of the benchmark; `num_objects` in each episode, those to move among them."""

    name: str = ""
    title: str = ""
    num_objects: int = 30


@dataclasses.dataclass(frozen=True, slots=True)
class EvalSettings:
    """The settings of an evaluation; the metadata of the fields is the command's help."""

    scenario: Scenario = config.preset("scenario", Scenario, None, "what to do")
    protocol: Protocol = config.preset(
        "protocol", Protocol, "habitat", "what counts as success; protocol.KEY=... changes an entry"
    )
    agent: Literal["scripted"] = config.option("scripted", "who acts for the skills")
    engine: Literal["mujoco"] = config.option("mujoco", "what simulates")
    split: Literal["train", "val"] = config.option("val", "apartments of training or validation")
    num_episodes: int | None = config.option(
        None, "how many, from the first (default: 20, or all of the file)", minimum=1
    )
    seed: int = config.option(0, "of the generated episodes", minimum=0)
    episodes: str | None = config.option(None, "a dataset file (.jsonl.gz) to use instead")
    replan: bool = config.option(False, "after a failure plan again from what is seen")
    processes: int = config.option(0, "worker processes; 0: one for each core", minimum=0)
    videos: int = config.option(0, "film the first so many episodes", minimum=0)
    video_stride: int = config.option(4, "control steps from frame to frame", minimum=1)
    out: str | None = config.option(None, "folder of the results (default: out/SCENARIO)")
