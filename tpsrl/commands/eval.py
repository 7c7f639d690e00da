"""`tpsrl eval`: runs episodes and writes the report."""

from collections.abc import Callable
from typing import Any

from tpsrl import config
from tpsrl.commands import Command
from tpsrl.errors import UserError, unknown
from tpsrl.runtime import processes, progress

TARGETS = """SCENARIO is one of the benchmark's (tidy_house, prepare_groceries, set_table) or your
own file (path/to/my_scenario.yaml, see docs/add_a_scenario.md). `all` runs the three scenarios of
the benchmark. A skill is evaluated alone, from its own start states; `skills` evaluates every skill
that plans use. To resume a stopped evaluation, run the same command again."""

_SCENARIO = f"""Runs the episodes of a scenario and reports full success, each stage of the plan
and the first causes of failure, with 95% intervals. Writes report.html, report.json,
episodes.jsonl, config.yaml, timing.json and videos into the output folder.

{TARGETS}"""
_ALL = """Runs the episodes of every scenario under one protocol and prints one table. Each
scenario has its own output folder; report.html and report.json link to them."""
_SKILL = """Evaluates a skill alone, from its own start states, and reports success, unmet
conditions of failed episodes, steps, forces and reward."""
_SKILLS = """Evaluates every skill alone and prints one table. Each skill has its own output folder;
report.html and report.json link to them."""

_STOPPED = "stopped; run the same command again to resume"


def choose(word: str | None) -> Command:
    """The command for the word that says what to run; "" when nothing was said at all.

    Raises:
        UserError: there is no such scenario or skill; names the nearest.
    """
    from eval import settings

    scenarios = config.preset_names("scenario")
    if word == "":
        words = ", ".join([*scenarios, "all", *_skills(), "skills"])
        raise UserError(f"scenario or skill: choose one of {words}")
    if word is None:
        return Command(_SCENARIO, settings.EvalSettings, run_scenario)
    if word in scenarios or config.names_file(word):
        fixed = (f"scenario={word}",)
        return Command(_SCENARIO, settings.EvalSettings, run_scenario, fixed=fixed)
    if word == "all":
        return Command(_ALL, settings.AllSettings, run_all)
    if word == "skills":
        return Command(_SKILLS, settings.SkillsSettings, run_skills)
    if word not in _skills():
        raise unknown("scenario or skill", word, [*scenarios, "all", *_skills(), "skills"])
    return Command(_SKILL, settings.SkillSettings, run_skill, fixed=(f"skill={word}",))


def _skills() -> list[str]:
    from skills.registry import names

    return list(names())


def run_scenario(settings: Any) -> int:
    """Evaluates; 0 when all episodes were run, whether or not they succeeded."""
    with progress.loading():
        from eval.running.evaluator import evaluate

    return _to_the_end(evaluate, settings)


def run_all(settings: Any) -> int:
    """Evaluates every scenario."""
    with progress.loading():
        from eval.running.several import evaluate_scenarios

    return _to_the_end(evaluate_scenarios, settings)


def run_skill(settings: Any) -> int:
    """Evaluates one skill by itself."""
    with progress.loading():
        from eval.running.skill_evaluator import evaluate_skill

    return _to_the_end(evaluate_skill, settings)


def run_skills(settings: Any) -> int:
    """Evaluates every skill by itself."""
    with progress.loading():
        from eval.running.several import evaluate_skills

    return _to_the_end(evaluate_skills, settings)


def _to_the_end(evaluate: Callable[[Any], Any], settings: Any) -> int:
    """0, when it is done; says how to go on when it is stopped before."""
    from rich.console import Console

    from tpsrl.sim import datasets

    try:
        with datasets.shown(Console()):
            evaluate(settings)
    except (processes.Terminated, KeyboardInterrupt):
        print(_STOPPED)
        raise
    return 0
