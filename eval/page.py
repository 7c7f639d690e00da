"""`report.html`: the report as one page that needs nothing else to be read."""

import importlib.resources
import string
from collections.abc import Sequence
from html import escape
from typing import Any

from eval.results import EpisodeResult, generic

_LABEL, _PLOT, _COUNTS, _ROW, _TOP = 150, 560, 250, 26, 26  # pixels of the chart


def render(report: dict[str, Any], results: Sequence[EpisodeResult]) -> str:
    """The page; links to videos are relative to the folder it lies in."""
    template = importlib.resources.files("eval") / "page.html"
    return string.Template(template.read_text(encoding="utf-8")).substitute(
        title=escape(f"{report['title']}, {report['agent']} skills"),
        facts=_facts(report),
        headline=_headline(report, results),
        chart=_chart(report["stages"]),
        causes=_causes(report["first_causes"]),
        videos=_videos(results),
        episodes=_episodes(results),
    )


def percent(value: float | None) -> str:
    """A share as a percentage, "-" when it was not measured."""
    return "-" if value is None else f"{100 * value:.1f}%"


def signed(margin: float | None, unit: str) -> str:
    """A margin with its unit; yes-or-no facts have no size to show."""
    return "" if margin is None or unit == "bool" else f"{margin:+.3g} {unit}"


def _facts(report: dict[str, Any]) -> str:
    facts = [
        f"{report['num_episodes']} episodes of split {report['split']}",
        f"seed {report['seed']}",
        f"protocol {report['protocol']}",
        f"engine {report['engine']}",
        "replanning after failures" if report["replan"] else "fixed plan",
        f"tpsrl {report['version']}",
    ]
    changed = ", ".join(f"{key}={value}" for key, value in report["protocol_changes"].items())
    if changed:
        facts.insert(3, f"with {changed}")
    return escape(" · ".join(facts))


def _headline(report: dict[str, Any], results: Sequence[EpisodeResult]) -> str:
    success, goals = report["success"], results[0].goals
    interval = f"{percent(success['ci_low'])} to {percent(success['ci_high'])}"
    count = sum(r.success for r in results)
    figures = [
        (percent(success["mean"]), f"full success, 95% interval {interval}", "figure main"),
        (f"{count} of {len(results)}", "episodes", "figure"),
        (f"{goals * report['goals_met']:.2f} of {goals}", "objects at their goals, mean", "figure"),
        (f"{report['steps']['mean']:.0f}", "control steps, mean", "figure"),
        (f"{report['force']['peak_n']['median'] / 1000:.2f} kN", "peak force, median", "figure"),
    ]
    return "".join(
        f'<div class="{kind}"><b>{escape(value)}</b><span>{escape(text)}</span></div>'
        for value, text, kind in figures
    )


def _chart(stages: Sequence[dict[str, Any]]) -> str:
    height, width = _TOP + _ROW * len(stages) + 6, _LABEL + _PLOT + _COUNTS
    parts = [
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="Success of each stage">',
        *(_gridline(share, height) for share in (0.0, 0.25, 0.5, 0.75, 1.0)),
        *(_stage_row(stage, _TOP + _ROW * row) for row, stage in enumerate(stages)),
        "</svg>",
    ]
    return "\n".join(parts)


def _gridline(share: float, height: int) -> str:
    x = _x(share)
    return (
        f'<line class="grid" x1="{x}" x2="{x}" y1="{_TOP - 6}" y2="{height}"/>'
        f'<text class="soft" x="{x}" y="12" text-anchor="middle">{100 * share:.0f}%</text>'
    )


def _stage_row(stage: dict[str, Any], top: int) -> str:
    middle = top + _ROW / 2
    label = escape(f"{stage['index'] + 1}  {stage['name']}")
    counts = f"{stage['succeeded']} of {stage['reached']}, skill {stage['skill_succeeded']}"
    if not stage["reached"]:
        counts = "never run"
    parts = [
        f'<text x="0" y="{middle + 4}">{label}</text>',
        f'<rect class="bar" x="{_LABEL}" y="{top + 4}" width="{_PLOT * stage["cumulative"]:.1f}"'
        f' height="{_ROW - 8}" rx="2"/>',
        f'<text x="{_LABEL + _PLOT + 20}" y="{middle + 4}">{percent(stage["rate"])}'
        f'<tspan class="soft" dx="8">{counts}</tspan></text>',
    ]
    if stage["rate"] is not None:
        low, high, rate = (_x(stage[key]) for key in ("ci_low", "ci_high", "rate"))
        parts.append(
            f'<line class="whisker" x1="{low}" x2="{high}" y1="{middle}" y2="{middle}"/>'
            f'<circle class="dot" cx="{rate}" cy="{middle}" r="4.5"/>'
        )
    return "".join(parts)


def _x(share: float) -> float:
    return round(_LABEL + _PLOT * share, 1)


def _causes(causes: Sequence[dict[str, Any]]) -> str:
    if not causes:
        return '<p class="good">No episode failed.</p>'
    rows = [
        [
            str(cause["count"]),
            _stage_label(cause["stage"], cause["name"]),
            f"<code>{escape(cause['predicate'])}</code>",
            escape(cause["reason"]),
            escape(signed(cause["margin"], cause["unit"])),
        ]
        for cause in causes
    ]
    return _table(["#episodes", "stage", "what did not hold", "why", "#margin"], rows)


def _stage_label(stage: int, name: str) -> str:
    return escape(name if stage < 0 else f"{stage + 1}  {name}")


def _videos(results: Sequence[EpisodeResult]) -> str:
    figures = [
        f'<figure><video controls preload="metadata" src="{escape(r.video)}"></video>'
        f'<figcaption>episode <a href="{escape(r.video)}">{escape(r.id)}</a>, '
        f"{'success' if r.success else 'failed'}</figcaption></figure>"
        for r in results
        if r.video
    ]
    if not figures:
        return ""
    return f'<section><h2>Videos</h2><div class="videos">{"".join(figures)}</div></section>'


def _episodes(results: Sequence[EpisodeResult]) -> str:
    heads = ["episode", "layout", "result", "#goals", "#steps", "#peak", "#total", "first cause"]
    rows = []
    for r in results:
        name = f'<a href="{escape(r.video)}">{escape(r.id)}</a>' if r.video else escape(r.id)
        mark = _span("good", "success") if r.success else _span("bad", "failed")
        forces = [f"{r.force_peak_n / 1000:.2f} kN", f"{r.force_total_n / 1000:.1f} kN"]
        goals, steps = f"{r.goals_met}/{r.goals}", str(r.steps)
        rows.append([name, escape(r.layout), mark, goals, steps, *forces, _cause_text(r)])
    return _table(heads, rows)


def _span(kind: str, text: str) -> str:
    return f'<span class="{kind}">{escape(text)}</span>'


def _cause_text(result: EpisodeResult) -> str:
    cause = result.first_cause
    if cause is None:
        return ""
    margin = signed(cause.margin, cause.unit)
    stage = _stage_label(cause.stage, cause.name)
    text = f"<code>{escape(generic(cause.predicate))}</code> {escape(margin)}"
    return f"{stage}: {text} ({escape(cause.reason)})" if stage else f"{text} ({cause.reason})"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table of cells that are HTML already; heads that start with # are of numbers."""
    kinds = [' class="n"' if head.startswith("#") else "" for head in heads]

    def line(tag: str, cells: Sequence[str]) -> str:
        pairs = zip(kinds, cells, strict=True)
        return f"<tr>{''.join(f'<{tag}{kind}>{cell}</{tag}>' for kind, cell in pairs)}</tr>"

    head = line("th", [escape(h.lstrip("#")) for h in heads])
    return f"<table>{head}{''.join(line('td', row) for row in rows)}</table>"
