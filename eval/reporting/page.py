"""`report.html`: the report as one page that needs nothing else to be read."""

from collections.abc import Sequence
from typing import Any

from eval.reporting import (
    acting,
    bars,
    blocks,
    episodes,
    extras,
    films,
    flow,
    handoffs,
    losses,
    repairs,
    words,
)
from eval.reporting.markup import Markup, fill, join
from eval.reporting.words import percent, signed

_STAGES_NOTE = """Bar: share of all episodes in which this stage and every one before it succeeded;
dashed is what is lost here. Point and line: success of those that ran it, with its 95% Wilson
interval, and beside it in how many runs it succeeded by the plan's predicates, by the skill's own
thresholds, which are other ones, and in how many the two disagree."""
_PLANS_NOTE = """Plans differ between episodes, so stages of one number share the episodes."""
_CAUSES_NOTE = """What went wrong first in each failed episode. The margin is what was missing, the
median over the episodes."""
_BLAME_NOTE = """Failed episodes by the skill that failed and, where that skill would have done it
from its own start states, by the one before it, which set it up to fail."""
_STAGE_RULES = {
    "ever": "Episodes in which the goal's facts held together at some step, whatever came later.",
    "cumulative": "Episodes in which the goal's facts held together at some step after all goals"
    " above had been reached.",
    "subtask": "Episodes in which the skills of this step and of all before it succeeded.",
}


def render(report: dict[str, Any], records: Sequence[dict[str, Any]]) -> str:
    """The page of a scenario; `report` and `records` are those of its files.

    Links to videos are relative to the folder that the page lies in.
    """
    sections = [
        blocks.headline(_figures(report, records), report.get("findings") or ()),
        blocks.section("Stages of the plan", _stages_note(report), funnel(report["stages"])),
        handoffs.section(report),
        losses.section(report),
        flow.section(report),
        repairs.section(report),
        *_objects(report),
        _first_causes(report),
        films.reel(report),
        blocks.section("Stage goals", _STAGE_RULES[report["stage_rule"]], _stage_goals(report)),
        blocks.section(
            "Timeouts", (report.get("timeouts") or {}).get("how", ""), _timeouts(report)
        ),
        films.videos(records),
        episodes.section(report, records),
        blocks.protocol(report),
    ]
    facts = list(blocks.common_facts(report))
    facts.insert(-1, "replanning after failures" if report["replan"] else "fixed plan")
    facts += acting.facts(report)
    return blocks.shell(f"{report['title']}, {acting.who(report)}", facts, sections)


def _figures(report: dict[str, Any], records: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    success, goals = report["success"], records[0]["goals"]
    count, total = round(success["mean"] * report["num_episodes"]), report["num_episodes"]
    return [
        (percent(success["mean"]), f"full success, 95% interval {words.interval(success)}"),
        (f"{count} of {total}", "episodes"),
        (f"{goals * report['goals_met']:.2f} of {goals}", "objects at their goals, mean"),
        (f"{report['steps']['mean']:.0f}", "control steps, mean"),
        (f"{report['force']['peak_n']['median'] / 1000:.2f} kN", "peak force, median"),
        *extras.figures(report),
    ]


def _timeouts(report: dict[str, Any]) -> Markup:
    """Success by both readings of timeouts."""
    found = report.get("timeouts")
    if not found:
        return blocks.paragraph("Not measured.")
    rows = []
    for name, text in (("ending", "a timeout ends the episode"), ("ignored", "it is ignored")):
        rate = found[name]
        rows.append([text, percent(rate["mean"]) if rate else "not run", words.interval(rate)])
    reasons = ", ".join(f"{words.reason(name)} {count}" for name, count in found["reasons"].items())
    out = f"Skills ran out of steps, or would have, in {found['episodes']} episodes"
    out += f" ({reasons})." if reasons else "."
    table = blocks.table(["reading", "#full success", "#95% interval"], rows)
    return join((table, blocks.paragraph(out)))


def _one_plan(stages: Sequence[dict[str, Any]]) -> bool:
    return len({stage["index"] for stage in stages}) == len(stages)


def _stages_note(report: dict[str, Any]) -> str:
    return _STAGES_NOTE if _one_plan(report["stages"]) else f"{_STAGES_NOTE} {_PLANS_NOTE}"


def funnel(stages: Sequence[dict[str, Any]]) -> Markup:
    """The chart of the share of episodes that come through each stage."""
    one_plan = _one_plan(stages)  # or who came through the one before is unclear
    rows, before = [], 1.0
    for stage in stages:
        rows.append(_stage_row(stage, before if one_plan else stage["cumulative"]))
        before = stage["cumulative"]
    return bars.chart(bars.SHARES, rows)


def _stage_row(stage: dict[str, Any], before: float) -> Markup:
    through = stage["cumulative"]
    picture = [bars.bar(bars.SHARES, 0.0, through, "bar")]
    if before > through:
        picture.append(bars.bar(bars.SHARES, through, before, "gone"))
    if stage["rate"] is not None:
        ends = stage["ci_low"], stage["ci_high"]
        picture.append(bars.point(bars.SHARES, stage["rate"], *ends))
    counts = f"{stage['succeeded']} of {stage['reached']}, skill {stage['skill_succeeded']}"
    differ = stage["only_predicates"] + stage["only_skill"]
    if differ:
        counts += f", {differ} differ"
    told = f"{percent(stage['rate'])}: {counts}" if stage["reached"] else "never run"
    value = fill("<strong>{}</strong> {}", percent(through), blocks.span("soft", told))
    label = _stage_label(stage["index"], stage["name"])
    return bars.row(bars.SHARES, label, join(picture), value)


def _objects(report: dict[str, Any]) -> list[Markup]:
    parts = [blocks.table(heads, rows, "Objects and ways") for heads, rows in acting.tables(report)]
    return [blocks.section("Objects and ways", acting.NOTE, join(parts))] if parts else []


def _stage_goals(report: dict[str, Any]) -> Markup:
    rows = [
        [
            goal["name"],
            f"{goal['reached']} of {goal['episodes']}",
            percent(goal["rate"]),
            words.interval(goal),
        ]
        for goal in report["stage_goals"]
    ]
    heads = ["stage goal", "#reached in", "#rate", "#95% interval"]
    if not rows:
        return blocks.paragraph("The plan has none.")
    return blocks.table(heads, rows, "Stage goals")


def _first_causes(report: dict[str, Any]) -> Markup:
    parts = [causes(report["first_causes"])]
    blame = report.get("blame") or []
    if blame:
        parts += [blocks.subheading("Who failed, and who set it up"), _blame(blame)]
    return blocks.section("First causes of failure", _CAUSES_NOTE, *parts)


def _blame(blame: Sequence[dict[str, Any]]) -> Markup:
    rows = [
        [
            row["count"],
            words.plain(row["skill"]),
            words.plain(row["set_up_by"]) if row["set_up_by"] else "itself",
        ]
        for row in blame
    ]
    told = blocks.paragraph(_BLAME_NOTE, "note")
    return join((told, blocks.table(["#episodes", "failed", "set up by"], rows)))


def causes(rows: Sequence[dict[str, Any]]) -> Markup:
    """The table of first causes."""
    if not rows:
        return blocks.paragraph("No episode failed.", "good")
    cells = [
        [
            cause["count"],
            _stage_label(cause["stage"], cause["name"]),
            blocks.named(words.fact(cause["predicate"]), cause["predicate"]),
            words.reason(cause["reason"]),
            signed(cause["margin"], cause["unit"]),
        ]
        for cause in rows
    ]
    heads = ["#episodes", "stage", "what did not hold", "why", "#margin"]
    return blocks.table(heads, cells, "First causes of failure")


def _stage_label(stage: int, name: str) -> str:
    return words.stage(name) if stage < 0 else f"{stage + 1}  {words.stage(name)}"
