"""Evaluations of scenarios in homes without physics."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import kinematic_home as fake
from rich.console import Console

from eval.analysing.results import EpisodeResult
from eval.running.evaluator import EpisodeJob, run_episode
from eval.settings import EvalSettings
from tpsrl import config
from tpsrl.errors import UserError


@dataclasses.dataclass(frozen=True)
class Fake:
    """Worker factory without physics; in odd episodes the robot places off the goal."""

    settings: EvalSettings

    def __call__(self) -> Callable[[EpisodeJob], EpisodeResult]:
        return self.work

    def work(self, job: EpisodeJob) -> EpisodeResult:
        odd = int(job.episode.id[-1]) % 2 == 1
        policies = {
            "navigate": fake.Drive(),
            "pick": fake.Grab(),
            "place": fake.Put(offset_m=1.0 if odd else 0.0),
        }
        return run_episode(self.settings, fake.PicturedHome(), policies, fake.Fold(), job)


class Refusing(Fake):
    """Worker factory whose second episode is invalid."""

    def work(self, job: EpisodeJob) -> EpisodeResult:
        if job.episode.id == "test/1":
            raise UserError("episode test/1: object 3 overlaps the sofa")
        return super().work(job)


def settings(dataset: Path, out: Path, *overrides: str) -> EvalSettings:
    # The runs of an analysis have another factory, see tests/runs/test_analysis.py.
    fixed = ["scenario=tidy_house", f"episodes={dataset}", f"out={out}", "analysis_episodes=0"]
    return config.load(EvalSettings, config.parse([*fixed, *overrides]))


def quiet() -> Console:
    return Console(quiet=True)
