"""Evaluations of several scenarios or skills, each with its own report and a common index."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import structs
from rich.console import Console

from eval.analysing.bounds import encode
from eval.analysing.schema import Index, IndexRow, Ran, Report, SkillReport
from eval.reporting import index, pages
from eval.running import agents, journal, runs
from eval.running.episodes import DEFAULT_COUNT
from eval.running.evaluator import evaluate
from eval.running.skill_evaluator import evaluate_skill
from eval.settings import AllSettings, EvalSettings, SkillSettings, SkillsSettings
from tpsrl.errors import UserError, renamed
from tpsrl.runtime import files, locks, records
from tpsrl.world.scenarios import benchmark_names, load_scenario

# Journals are kept until all evaluations are done, so that a resumed run skips the finished ones.
_evaluate = functools.partial(evaluate, keep_journal=True)
_evaluate_skill = functools.partial(evaluate_skill, keep_journal=True)


def evaluate_scenarios(
    settings: AllSettings,
    console: Console | None = None,
    run: Callable[[EvalSettings, Console], Report] = _evaluate,
) -> Index:
    """Evaluates every scenario of the benchmark; writes and returns the index of the reports.

    Raises:
        UserError: an output folder cannot be written or is in use by another process, or an episode
            is invalid.
        RunError: a worker failed or died.
    """
    console, out = console or Console(), _output_folder(settings.out or "out/all")
    with locks.hold(out):
        reports = {}
        given = _fields(settings) | {"num_episodes": settings.num_episodes or DEFAULT_COUNT}
        every = {
            name: EvalSettings(**given | {"out": str(out / name)}, scenario=load_scenario(name))
            for name in benchmark_names()
        }
        _check_inner(out, every, settings.replace)
        for name, own in every.items():
            reports[name] = run(own, console)
        acted = agents.describe_preset(settings.agent, settings.learned())
        used = {name for report in reports.values() for name in report.stand_ins or ()}
        acted["stand_ins"] = {n: who for n, who in acted["stand_ins"].items() if n in used}
        ran = {"title": "Home Assistant Benchmark", **runs.what_ran(settings), **acted}
        return _finish(console, out, ran, index.scenario_rows(reports))


def evaluate_skills(
    settings: SkillsSettings,
    console: Console | None = None,
    run: Callable[[SkillSettings, Console], SkillReport] = _evaluate_skill,
) -> Index:
    """Evaluates every skill in isolation; writes and returns the index of the reports.

    Raises:
        UserError: an output folder cannot be written or is in use by another process, or a start
            state is invalid.
        RunError: a worker failed or died.
    """
    console, out = (
        console or Console(),
        _output_folder(settings.out or "out/skills"),
    )
    with locks.hold(out):
        reports = {}
        given = _fields(settings) | {"num_episodes": settings.num_episodes or DEFAULT_COUNT}
        every = {
            name: SkillSettings(**given | {"agent": agent, "out": str(out / name)}, skill=name)
            for name, agent in _acting(settings, console).items()
        }
        _check_inner(out, every, settings.replace)
        for name, own in every.items():
            reports[name] = run(own, console)
        ran = {"title": "Skills in isolation", **_what_ran(settings, reports)}
        return _finish(console, out, ran, index.skill_rows(reports))


def _output_folder(out: str) -> Path:
    """Returns the folder of the index after checking that it can be written."""
    folder = files.check_writable(out)
    files.check_replaceable(folder, ["report.html", "report.json"])
    return folder


def _check_inner(
    out: Path, every: Mapping[str, EvalSettings] | Mapping[str, SkillSettings], replace: bool
) -> None:
    """Checks the folders of the index and of all evaluations, before the first one runs.

    Raises:
        UserError: a folder cannot be written, or holds another evaluation.
    """
    if (out / "config.yaml").is_file() and not replace:
        raise UserError(
            f"out: {out} holds an evaluation of one scenario or skill; choose another folder, or "
            "replace=true"
        )
    for settings in every.values():
        assert settings.out is not None
        runs.check_kept(runs.output_folder(settings.out), settings)


def _acting(settings: SkillsSettings, console: Console) -> dict[str, str]:
    """Returns the agent of each skill that has one, and prints the other skills."""
    from skills.registry import planned

    found, given = {}, settings.skills.given()
    for name in planned():
        field = f"skills.{name}"
        agent = given.get(name, settings.agent or agents.default(name))
        try:
            with renamed(field, field if name in given or not settings.agent else "agent"):
                agents.make_for_skill(agent, name)
            found[name] = agent
        except UserError as error:
            if settings.agent or name in given:
                raise
            console.print(f"left out: {error}", highlight=False, markup=False, soft_wrap=True)
    return found


def _what_ran(settings: SkillsSettings, reports: Mapping[str, SkillReport]) -> dict[str, Any]:
    acted = agents.describe(settings.agent or agents.SCRIPTED, settings.skills.given())
    for report in reports.values():
        acted["learned"] |= encode(report.learned)
    return {**runs.what_ran(settings), **acted}


def _fields(settings: Any) -> dict[str, Any]:
    return {f.name: getattr(settings, f.name) for f in dataclasses.fields(settings)}


def _finish(console: Console, out: Path, ran: dict[str, Any], rows: list[IndexRow]) -> Index:
    """Writes and shows the index, and removes the journals of its runs.

    The runs have the same number of episodes, except for lost ones.
    """
    header = structs.asdict(records.decode(ran, Ran, "report"))
    summary = Index(**header, runs=rows, num_episodes=max(row.num_episodes for row in rows))
    files.write_text(out / "report.html", pages.index(summary))
    files.write_json(out / "report.json", encode(summary))
    for row in rows:
        journal.remove(out / row.folder)
    index.show(console, summary)
    runs.tell_where(console, out)
    return summary
