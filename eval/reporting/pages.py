"""`report.html` of a scenario, of a skill, of several of either, and of a comparison.

Pages are self-contained, except for links to videos and other reports relative to their folder. The
templates beside this module escape all texts.
"""

import functools
import re
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any

import jinja2
from markupsafe import Markup, escape

from eval.analysing.results import EpisodeResult
from eval.analysing.schema import (
    Comparison,
    Index,
    RepairRow,
    Report,
    SkillReport,
)
from eval.analysing.skill_results import SkillResult
from eval.reporting import acting, bars, differences, extras, flow, losses, words
from eval.reporting import index as tables
from eval.reporting.words import percent
from skills.policies.rules import RULES


def scenario(report: Report, results: Sequence[EpisodeResult]) -> str:
    """Returns the page of a scenario; `results` are of its episodes, as in episodes.jsonl."""
    facts = _facts(report)
    facts.insert(-1, "replanning after failures" if report.replan else "fixed plan")
    return _render(
        "scenario.html",
        title=f"{report.title}, {acting.who(report)}",
        facts=[*facts, *acting.facts(report), *extras.notes(report), *extras.lost(report)],
        report=report,
        results=results,
        figures=_scenario_figures(report, results),
        first_cause_of={result.id: result.first_cause for result in results},
        waterfall=losses.waterfall(report.propagation),
        flow=flow.picture(report.flow or None, results),
        flow_width=flow.WIDTH,
        bar_width=flow.BAR,
    )


def skill(report: SkillReport, results: Sequence[SkillResult]) -> str:
    """Returns the page of a skill in isolation; `results` are of its runs."""
    return _render(
        "skill.html",
        title=f"{report.title}, {report.agent} agent",
        facts=[*_facts(report), *extras.lost(report)],
        report=report,
        results=results,
        figures=_skill_figures(report),
    )


def index(report: Index) -> str:
    """Returns the page of several evaluations, with links to the reports in subfolders."""
    cells = [list(tables.cells(row).items()) for row in report.runs]
    heads = [f"#{head}" if place else head for place, (head, _) in enumerate(cells[0])]
    texts = [[text for _, text in row[1:]] for row in cells]
    return _render(
        "index.html",
        title=f"{report.title}, {acting.who(report)}",
        facts=[*_facts(report), *filter(None, [extras.all_lost(report)])],
        report=report,
        of_scenarios=isinstance(report.runs[0].stages, float | int),
        heads=heads,
        rows=list(zip(report.runs, texts, strict=True)),
    )


def comparison(report: Comparison) -> str:
    """Returns the page of a comparison, with links to the evaluations."""
    facts = [f"{report.num_episodes} common episodes of split {report.split}"]
    facts.append(f"seed {report.seed}")
    if report.dataset is not None:
        facts.append(f"dataset {report.dataset}")
    return _render(
        "comparison.html",
        title=f"{report.title}, {len(report.agents)} agents compared",
        facts=facts,
        report=report,
        warnings=differences.warnings(report),
        stages=differences.stages(report.agents),
        parts=differences.parts(report.agents),
        taxes=differences.taxes(report.agents),
        causes=differences.causes(report.agents),
    )


def _scenario_figures(report: Report, results: Sequence[EpisodeResult]) -> list[tuple[str, str]]:
    goals = results[0].goals
    return [
        (percent(report.success.mean), f"full success, 95% interval {_interval(report)}"),
        (_count(report), "episodes"),
        (f"{goals * report.goals_met:.2f} of {goals}", "objects at their goals, mean"),
        (f"{report.steps.mean:.0f}", "control steps, mean"),
        (f"{report.force.peak_n.median / 1000:.2f} kN", "peak force, median"),
        *extras.figures(report),
    ]


def _skill_figures(report: SkillReport) -> list[tuple[str, str]]:
    driving = []
    if found := words.driving(report):
        name, figure, sure = found
        driving = [(figure, f"{name}, 95% interval {sure}" if sure else f"{name}, mean")]
    return [
        (percent(report.success.mean), f"success, 95% interval {_interval(report)}"),
        (_count(report), "runs"),
        (f"{report.steps.mean:.0f}", "control steps, mean"),
        (f"{report.reward.mean:.2f}", "reward, mean"),
        *driving,
        (f"{report.force.peak_n.median / 1000:.2f} kN", "peak force, median"),
        *extras.figures(report),
    ]


def _interval(report: Report | SkillReport) -> str:
    return words.interval(report.success)


def _count(report: Report | SkillReport) -> str:
    return f"{round((report.success.mean or 0) * report.num_episodes)} of {report.num_episodes}"


def _facts(report: Report | SkillReport | Index) -> list[str]:
    """Returns the description of the run in short phrases."""
    count = f"{report.num_episodes} episodes"
    source = [f"{count} of split {report.split}", f"seed {report.seed}"]
    if isinstance(report, SkillReport) and report.starts is not None:
        source = [f"{count} from {report.starts}"]
    facts = [
        *source,
        f"protocol {report.protocol}",
        f"engine {report.engine}",
        f"tpsrl {report.version}",
    ]
    for name, policy in report.learned.items():
        steps = f"{policy.trained_steps / 1e6:.1f} million steps"
        mean = ", mean actions" if policy.sample is False else ""
        for setting, rule in RULES.items():
            if value := getattr(policy, setting):
                mean += f", {rule.report.format(value)}"
        facts.append(f"{words.plain(name)} trained for {steps}: {policy.checkpoint}{mean}")
    facts += filter(None, (acting.privileged(report), acting.blinded(report)))
    if changed := words.changes(report.protocol_changes):
        facts.insert(-2, f"with {changed}")
    return facts


def address(path: str) -> str:
    """Returns the URL of a file relative to the page, for an attribute.

    Raises:
        ValueError: the path is absolute, so that it could name another host.
    """
    if path.startswith("/"):
        raise ValueError(f"{path!r} does not begin at the page")
    return urllib.parse.quote(path)  # including the colon of a scheme


def _prose(text: str) -> Markup:
    """Returns text with the parts between backticks as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _amount(value: float, unit: str) -> str:
    return percent(value) if unit == "share" else f"{value:.2f} {unit}"


def _edge(value: float | None, unit: str) -> str:
    """Returns the bound of a bin as text; the last bin may have none."""
    if value is None:
        return "more"
    if unit == "share":
        return f"{100 * value:.0f}%"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}".rstrip("0").rstrip(".")


def _gain_axis(rows: Sequence[RepairRow]) -> bars.Axis:
    ends = (end for row in rows for end in (row.gain, row.ci_low, row.ci_high))
    return bars.around([0.0, *ends], signed=True)


def _head(name: str) -> str:
    """Returns the head of a column of numbers."""
    return f"#{name}"


_FILTERS: dict[str, Callable[..., Any]] = {
    "address": address,
    "amount": _amount,
    "dimension": words.dimension,
    "edge": _edge,
    "fact": words.fact,
    "figures": words.figures,
    "gain_axis": _gain_axis,
    "head": _head,
    "interval": words.interval,
    "judged_by": differences.judged_by,
    "lacking": words.lacking,
    "link": words.link,
    "loss": words.loss,
    "numbered": words.numbered,
    "percent": percent,
    "plain": words.plain,
    "points": words.points,
    "points_between": words.points_between,
    "points_interval": words.points_interval,
    "privileged": acting.privileged,
    "probability": words.probability,
    "prose": _prose,
    "reason": words.reason,
    "repair": words.repair,
    "repair_sentence": words.repair_sentence,
    "replay": words.replay,
    "sentence": differences.sentence,
    "short": acting.short,
    "signed": words.signed,
    "stage": words.stage,
    "steps": words.steps,
}


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("eval.reporting"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= _FILTERS
    environment.globals |= {"pairs": zip, "shares": bars.SHARES}
    return environment


def _render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(**values)
