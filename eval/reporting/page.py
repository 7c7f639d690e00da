"""`report.html`: the report as one page that needs nothing else to be read."""

import dataclasses
import importlib.resources
import string
from collections.abc import Sequence
from html import escape
from typing import Any, Protocol

from eval.analysing.results import EpisodeResult, generic
from eval.reporting import acting, extras
from eval.reporting.words import percent, signed

_WIDTH, _COUNTS, _ROW, _TOP = 960, 250, 26, 26  # pixels of the chart
_LEAST_LABEL, _LETTER = 150, 7.2

_STAGES_NOTE = """Bar: share of all episodes in which this stage and every one before it succeeded.
Point and line: success of those that ran it, with its 95% Wilson interval. A stage succeeds by the
plan's predicates; then come the success by the skill's own thresholds, which are other ones, and
the number of runs in which the two disagree."""
_CAUSES_NOTE = """What went wrong first in each failed episode. The margin is what was missing, the
median over the episodes."""
_EPISODES_NOTE = """Forces are the largest of one contact, and the sum of its rises by more than
20 N; moved is the clutter that ended more than 0.1 m from where it was. Where a skill ran out of
steps, the fourth column says what came with that ignored. A video ends where the episode does."""
_STAGE_RULES = {
    "ever": "Episodes in which the goal's facts held together at some step, whatever came later.",
    "cumulative": "Episodes in which the goal's facts held together at some step after all goals"
    " above had been reached.",
    "subtask": "Episodes in which the skills of this step and of all before it succeeded.",
}


class Filmed(Protocol):
    """A result of an episode that may have been filmed."""

    @property
    def id(self) -> str:
        """The episode."""
        ...

    @property
    def success(self) -> bool:
        """Whether it succeeded."""
        ...

    @property
    def video(self) -> str | None:
        """The file, relative to the page."""
        ...


def render(report: dict[str, Any], results: Sequence[EpisodeResult]) -> str:
    """The page of a scenario; links to videos are relative to the folder it lies in."""
    sections = [
        headline(_figures(report, results)),
        section("Timeouts", (report.get("timeouts") or {}).get("how", ""), _timeouts(report)),
        section("Stages of the plan", _STAGES_NOTE, _chart(report["stages"])),
        section("Stage goals", _STAGE_RULES[report["stage_rule"]], _stage_goals(report)),
        *_objects(report),
        section("First causes of failure", _CAUSES_NOTE, causes(report["first_causes"])),
        videos(results),
        section("Episodes", _EPISODES_NOTE, _episodes(results)),
        protocol(report),
    ]
    facts = list(common_facts(report))
    facts.insert(-1, "replanning after failures" if report["replan"] else "fixed plan")
    facts += acting.facts(report)
    return shell(f"{report['title']}, {acting.who(report)}", facts, sections)


def shell(title: str, facts: Sequence[str], sections: Sequence[str]) -> str:
    """A whole page of sections that are HTML already; `facts` make the line under the title."""
    template = importlib.resources.files("eval.reporting") / "page.html"
    return string.Template(template.read_text(encoding="utf-8")).substitute(
        title=escape(title), facts=escape(" · ".join(facts)), sections="\n".join(sections)
    )


def section(title: str, note: str, content: str) -> str:
    """A box of the page; `content` is HTML, the others are text."""
    note = f'<p class="note">{escape(note)}</p>' if note else ""
    head = f"<h2>{escape(title)}</h2>\n{note}"
    return f'<section>\n{head}\n<div class="scroll">{content}</div>\n</section>'


def headline(figures: Sequence[tuple[str, str]]) -> str:
    """The box with the figures (value, what it is), the first one large."""
    parts = [
        f'<div class="figure{" main" if place == 0 else ""}"><b>{escape(value)}</b>'
        f"<span>{escape(text)}</span></div>"
        for place, (value, text) in enumerate(figures)
    ]
    return f'<section>\n<div class="headline">{"".join(parts)}</div>\n</section>'


def common_facts(report: dict[str, Any]) -> list[str]:
    """What was run, in short."""
    count = f"{report['num_episodes']} episodes"
    source = [f"{count} of split {report['split']}", f"seed {report['seed']}"]
    if report.get("starts") is not None:
        source = [f"{count} from {report['starts']}"]
    facts = [
        *source,
        f"protocol {report['protocol']}",
        f"engine {report['engine']}",
        f"tpsrl {report['version']}",
    ]
    for skill, policy in report["learned"].items():
        steps = f"{policy['trained_steps'] / 1e6:.1f} million steps"
        facts.append(f"{skill} trained for {steps}: {policy['checkpoint']}")
    changed = ", ".join(f"{key}={value}" for key, value in report["protocol_changes"].items())
    if changed:
        facts.insert(-2, f"with {changed}")
    return facts


def _figures(report: dict[str, Any], results: Sequence[EpisodeResult]) -> list[tuple[str, str]]:
    success, goals = report["success"], results[0].goals
    interval = f"{percent(success['ci_low'])} to {percent(success['ci_high'])}"
    count = sum(r.success for r in results)
    return [
        (percent(success["mean"]), f"full success, 95% interval {interval}"),
        (f"{count} of {len(results)}", "episodes"),
        (f"{goals * report['goals_met']:.2f} of {goals}", "objects at their goals, mean"),
        (f"{report['steps']['mean']:.0f}", "control steps, mean"),
        (f"{report['force']['peak_n']['median'] / 1000:.2f} kN", "peak force, median"),
        *extras.figures(report),
    ]


def _timeouts(report: dict[str, Any]) -> str:
    """Success by both readings of timeouts."""
    found = report.get("timeouts")
    if not found:
        return "<p>Not measured.</p>"
    rows = []
    for name, text in (("ending", "a timeout ends the episode"), ("ignored", "it is ignored")):
        rate = found[name]
        interval = f"{percent(rate['ci_low'])} to {percent(rate['ci_high'])}" if rate else "-"
        rows.append([text, percent(rate["mean"]) if rate else "not run", interval])
    reasons = ", ".join(f"{escape(name)} {count}" for name, count in found["reasons"].items())
    out = f"<p>Skills ran out of steps in {found['episodes']} episodes{': ' * bool(reasons)}"
    out += f"{reasons}.</p>"
    return table(["reading", "#full success", "#95% interval"], rows) + out


@dataclasses.dataclass(frozen=True, slots=True)
class _Axis:
    """Where shares from 0 to 1 lie, in pixels: right of the labels, left of the counts."""

    left: float

    @property
    def width(self) -> float:
        return _WIDTH - _COUNTS - self.left

    def x(self, share: float) -> float:
        return round(self.left + self.width * share, 1)


def _chart(stages: Sequence[dict[str, Any]]) -> str:
    height = _TOP + _ROW * len(stages) + 6
    longest = max((len(_stage_label(s["index"], s["name"])) for s in stages), default=0)
    axis = _Axis(max(_LEAST_LABEL, round(_LETTER * longest)))
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="Success of each stage">',
        *(_gridline(axis, share, height) for share in (0.0, 0.25, 0.5, 0.75, 1.0)),
        *(_stage_row(axis, stage, _TOP + _ROW * row) for row, stage in enumerate(stages)),
        "</svg>",
    ]
    return "\n".join(parts)


def _gridline(axis: _Axis, share: float, height: int) -> str:
    x = axis.x(share)
    return (
        f'<line class="grid" x1="{x}" x2="{x}" y1="{_TOP - 6}" y2="{height}"/>'
        f'<text class="soft" x="{x}" y="12" text-anchor="middle">{100 * share:.0f}%</text>'
    )


def _stage_row(axis: _Axis, stage: dict[str, Any], top: int) -> str:
    middle = top + _ROW / 2
    label = _stage_label(stage["index"], stage["name"])
    counts = f"{stage['succeeded']} of {stage['reached']}, skill {stage['skill_succeeded']}"
    differ = stage["only_predicates"] + stage["only_skill"]
    if differ:
        counts += f", {differ} differ"
    if not stage["reached"]:
        counts = "never run"
    parts = [
        f'<text x="0" y="{middle + 4}">{label}</text>',
        f'<rect class="bar" x="{axis.left}" y="{top + 4}"'
        f' width="{axis.width * stage["cumulative"]:.1f}"'
        f' height="{_ROW - 8}" rx="2"/>',
        f'<text x="{_WIDTH - _COUNTS + 20}" y="{middle + 4}">{percent(stage["rate"])}'
        f'<tspan class="soft" dx="8">{counts}</tspan></text>',
    ]
    if stage["rate"] is not None:
        low, high, rate = (axis.x(stage[key]) for key in ("ci_low", "ci_high", "rate"))
        parts.append(
            f'<line class="whisker" x1="{low}" x2="{high}" y1="{middle}" y2="{middle}"/>'
            f'<circle class="dot" cx="{rate}" cy="{middle}" r="4.5"/>'
        )
    return "".join(parts)


def _objects(report: dict[str, Any]) -> list[str]:
    parts = [table(heads, rows) for heads, rows in acting.tables(report)]
    return [section("Objects and ways", acting.NOTE, "".join(parts))] if parts else []


def _stage_goals(report: dict[str, Any]) -> str:
    rows = [
        [
            escape(goal["name"]),
            f"{goal['reached']} of {goal['episodes']}",
            percent(goal["rate"]),
            f"{percent(goal['ci_low'])} to {percent(goal['ci_high'])}",
        ]
        for goal in report["stage_goals"]
    ]
    heads = ["stage goal", "#reached in", "#rate", "#95% interval"]
    return table(heads, rows) if rows else "<p>The plan has none.</p>"


def protocol(report: dict[str, Any]) -> str:
    """The box with every value of the protocol, folded in."""
    changed = report["protocol_changes"]
    rows = [
        [
            f"<code>{escape(key)}</code>",
            escape("none" if value is None else str(value)),
            span("bad", "changed") if key in changed else "",
        ]
        for key, value in report["protocol_values"].items()
    ]
    values = table(["entry", "#value", ""], rows)
    summary = "<summary>Every value of the protocol</summary>"
    return f'<section><details>{summary}<div class="scroll">{values}</div></details></section>'


def causes(rows: Sequence[dict[str, Any]]) -> str:
    """The table of first causes."""
    if not rows:
        return '<p class="good">No episode failed.</p>'
    cells = [
        [
            str(cause["count"]),
            _stage_label(cause["stage"], cause["name"]),
            f"<code>{escape(cause['predicate'])}</code>",
            escape(cause["reason"]),
            escape(signed(cause["margin"], cause["unit"])),
        ]
        for cause in rows
    ]
    return table(["#episodes", "stage", "what did not hold", "why", "#margin"], cells)


def _stage_label(stage: int, name: str) -> str:
    return escape(name if stage < 0 else f"{stage + 1}  {name}")


def videos(results: Sequence[Filmed]) -> str:
    """The box with the videos, "" when there are none."""
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
    heads = ["episode", "layout", "result", "timeouts ignored", "#goals", "#steps", "#peak"]
    heads += ["#total", "#moved", "first cause"]
    rows = []
    for r in results:
        name = f'<a href="{escape(r.video)}">{escape(r.id)}</a>' if r.video else escape(r.id)
        mark = span("good", "success") if r.success else span("bad", "failed")
        forces = [f"{r.force_peak_n / 1000:.2f} kN", f"{r.force_total_n / 1000:.1f} kN"]
        goals, steps = f"{r.goals_met}/{r.goals}", str(r.steps)
        moved = "-" if r.clutter_moved is None else str(r.clutter_moved)
        layout = f'<span title="{escape(r.layout)}">{escape(r.layout.rpartition("/")[2])}</span>'
        cells = [name, layout, mark, _if_ignored(r), goals, steps, *forces, moved]
        rows.append([*cells, _cause_text(r)])
    return table(heads, rows)


def _if_ignored(result: EpisodeResult) -> str:
    """What came with timeouts ignored, where that is another run of events."""
    parted = result.timeouts is not None and result.timeouts.first is not None
    if not parted or result.timeouts is None:
        return ""
    ignored = result.timeouts.ignored
    return "not run" if ignored is None else "success" if ignored.success else "failed"


def span(kind: str, text: str) -> str:
    """A text in the style of a class of the page."""
    return f'<span class="{kind}">{escape(text)}</span>'


def _cause_text(result: EpisodeResult) -> str:
    cause = result.first_cause
    if cause is None:
        return ""
    margin = signed(cause.margin, cause.unit)
    stage = _stage_label(cause.stage, cause.name)
    text = f"<code>{escape(generic(cause.predicate))}</code> {escape(margin)}"
    return f"{stage}: {text} ({escape(cause.reason)})" if stage else f"{text} ({cause.reason})"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table of cells that are HTML already; heads that start with # are of numbers."""
    kinds = [' class="n"' if head.startswith("#") else "" for head in heads]

    def line(tag: str, cells: Sequence[str]) -> str:
        pairs = zip(kinds, cells, strict=True)
        return f"<tr>{''.join(f'<{tag}{kind}>{cell}</{tag}>' for kind, cell in pairs)}</tr>"

    head = line("th", [escape(h.lstrip("#")) for h in heads])
    return f"<table>{head}{''.join(line('td', row) for row in rows)}</table>"
