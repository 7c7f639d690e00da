"""Targets of `tpsrl eval`: a scenario, a skill, all scenarios or all skills."""

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
    """Target of an evaluation, as named by one word of the command line.

    Attributes:
        settings: dataclass of the evaluation's settings
        run: runs the evaluation with these settings
        fixed: settings that the word determines, by key
    """

    settings: type
    run: Callable[[Any], None]
    fixed: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def load(self, values: Mapping[str, Any]) -> Any:
        """Loads the settings of an evaluation from values by dotted key.

        Raises:
            UserError: see `tpsrl.config.load`.
        """
        return config.load(self.settings, {**values, **self.fixed})


def find(word: str) -> Evaluable:
    """Returns the target that a word names.

    Args:
        word: a scenario, the path of a scenario's file, a skill, `all` or `skills`

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
    """Returns the skill in a recorded config.yaml; None if it is of a scenario's evaluation."""
    return config.entry_of(files.user_path(path, "config"), "skill") or None


def a_scenario() -> Evaluable:
    """Returns the target without a word, for which `scenario` is an ordinary setting."""
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
    """Runs an evaluation; if it is stopped, prints how to resume it."""
    from rich.console import Console

    from tpsrl.sim import datasets

    try:
        with datasets.shown(Console()):
            evaluate(settings)
    except (processes.Terminated, KeyboardInterrupt):
        print(_STOPPED)
        raise
