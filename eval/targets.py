"""What can be evaluated: scenarios, skills, all of them."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from eval import settings as of
from skills import registry
from tpsrl import config
from tpsrl.errors import UserError, unknown
from tpsrl.runtime import files, processes, progress

ALL, SKILLS = "all", "skills"
_STOPPED = "stopped; run the same command again to resume"


@dataclasses.dataclass(frozen=True, slots=True)
class Evaluable:
    """What a word stands for that says what is evaluated.

    `settings` is the dataclass of its keys, `fixed` are those that the word sets, `run` evaluates.
    """

    settings: type
    run: Callable[[Any], None]
    fixed: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def load(self, values: Mapping[str, Any]) -> Any:
        """The settings of an evaluation from values by dotted key.

        Raises:
            UserError: see `tpsrl.config.load`.
        """
        return config.load(self.settings, {**values, **self.fixed})


def find(word: str) -> Evaluable:
    """The target of a word: a scenario, the path of a scenario's file, a skill, `all` or `skills`.

    Raises:
        UserError: there is no such scenario or skill; names the nearest.
    """
    scenarios, skills = config.preset_names("scenario"), registry.names()
    words = (*scenarios, ALL, *skills, SKILLS)
    if not word:
        raise UserError(f"scenario or skill: choose one of {', '.join(words)}")
    if word in scenarios or config.names_file(word):
        return dataclasses.replace(a_scenario(), fixed={"scenario": word})
    if word == ALL:
        return Evaluable(of.AllSettings, _scenarios)
    if word == SKILLS:
        return Evaluable(of.SkillsSettings, _skills)
    if word not in skills:
        raise unknown("scenario or skill", word, words)
    return Evaluable(of.SkillSettings, _skill, {"skill": word})


def recorded(path: str) -> str | None:
    """The skill of a recorded config.yaml of a skill's evaluation; None for a scenario's."""
    return config.entry_of(files.user_path(path, "config"), "skill") or None


def a_scenario() -> Evaluable:
    """The target of no word, where `scenario` is set as other keys are."""
    return Evaluable(of.EvalSettings, _scenario)


def _scenario(settings: Any) -> None:
    with progress.loading():
        from eval.running.evaluator import evaluate

    _to_the_end(evaluate, settings)


def _scenarios(settings: Any) -> None:
    with progress.loading():
        from eval.running.several import evaluate_scenarios

    _to_the_end(evaluate_scenarios, settings)


def _skill(settings: Any) -> None:
    with progress.loading():
        from eval.running.skill_evaluator import evaluate_skill

    _to_the_end(evaluate_skill, settings)


def _skills(settings: Any) -> None:
    with progress.loading():
        from eval.running.several import evaluate_skills

    _to_the_end(evaluate_skills, settings)


def _to_the_end(evaluate: Callable[[Any], Any], settings: Any) -> None:
    """Says how to go on when it is stopped before."""
    from rich.console import Console

    from tpsrl.sim import datasets

    try:
        with datasets.shown(Console()):
            evaluate(settings)
    except (processes.Terminated, KeyboardInterrupt):
        print(_STOPPED)
        raise
