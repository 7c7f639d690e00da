"""`tpsrl plan`: prints the plan of one episode."""

import dataclasses
from typing import Literal

from eval.settings import Scenario
from tpsrl import config

DESCRIPTION = """Searches the plan of one episode and prints its steps, each with the facts it
needs and those it brings about."""
POSITIONAL = ("scenario",)


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Which episode, and which domain."""

    scenario: Scenario = config.preset("scenario", Scenario, None, "what to do")
    episode: int = config.option(0, "number of the episode, from 0", minimum=0)
    split: Literal["train", "val"] = config.option("val", "apartments of training or validation")
    seed: int = config.option(0, "of the generated episodes", minimum=0)
    episodes: str | None = config.option(None, "a dataset file (.jsonl.gz) to use instead")
    domain: Literal["mended", "habitat"] = config.option(
        "mended", "planning domain; habitat: the benchmark's own, for comparison"
    )


def run(settings: Settings) -> int:
    """Prints the plan."""
    from eval.episodes import obtain
    from planner import problem, search

    wanted = obtain(
        settings.scenario.name,
        settings.split,
        settings.seed,
        settings.episode + 1,
        settings.episodes,
        settings.scenario.num_objects,
    )
    episode = wanted[settings.episode]
    domain = search.HABITAT_DOMAIN if settings.domain == "habitat" else search.DOMAIN
    print(f"episode {episode.id} in {episode.layout}, {len(episode.targets)} objects to move")
    print(search.plan(problem.problem_from_episode(episode), domain).describe())
    return 0
