"""`tpsrl eval`: runs episodes and writes the report."""

from typing import Any

from eval import settings as of
from eval import targets
from tpsrl.commands import Command

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

_DESCRIPTIONS: dict[type, str] = {
    of.EvalSettings: _SCENARIO,
    of.AllSettings: _ALL,
    of.SkillSettings: _SKILL,
    of.SkillsSettings: _SKILLS,
}


recorded = targets.recorded  # its result is passed to `choose` if there is no first word


def choose(word: str | None) -> Command:
    """Returns the command for a target; `word` is "" without arguments, None before settings.

    Raises:
        UserError: there is no such scenario or skill; names the nearest.
    """
    target = targets.a_scenario() if word is None else targets.find(word)

    def run(settings: Any) -> int:
        target.run(settings)
        return 0

    return Command(_DESCRIPTIONS[target.settings], target.settings, run, fixed=target.fixed)
