"""`report.html` of a skill that was run by itself."""

from collections.abc import Sequence
from html import escape
from typing import Any

from eval.analysing.skill_results import SkillResult
from eval.reporting import extras, page
from eval.reporting.words import percent, signed

_PARTS_NOTE = """In how many runs each part of success held at the end, and by how much it was
missed where it did not, the median. Success asks for all of them in one step."""
_CAUSES_NOTE = """The first part that was missing in each failed run, and how the run ended. The
margin is what was missing, the median over the runs."""
_RUNS_NOTE = "Forces are the largest of one contact, and the sum of its rises by more than 20 N."


def render(report: dict[str, Any], results: Sequence[SkillResult]) -> str:
    """The page; links to videos are relative to the folder it lies in."""
    sections = [
        page.headline(_figures(report)),
        page.section("Parts of success", _PARTS_NOTE, _parts(report["parts"])),
        page.section("First causes of failure", _CAUSES_NOTE, page.causes(report["first_causes"])),
        page.videos(results),
        page.section("Runs", _RUNS_NOTE, _runs(results)),
        page.protocol(report),
    ]
    facts = page.common_facts(report)
    return page.shell(f"{report['title']}, {report['agent']} agent", facts, sections)


def _figures(report: dict[str, Any]) -> list[tuple[str, str]]:
    success, count = report["success"], report["num_episodes"]
    interval = f"{percent(success['ci_low'])} to {percent(success['ci_high'])}"
    path = report["path"]
    driving = [] if path is None else [(f"{path['spl']:.2f}", "SPL, mean")]
    return [
        (percent(success["mean"]), f"success, 95% interval {interval}"),
        (f"{round(success['mean'] * count)} of {count}", "runs"),
        (f"{report['steps']['mean']:.0f}", "control steps, mean"),
        (f"{report['reward']['mean']:.2f}", "reward, mean"),
        *driving,
        (f"{report['force']['peak_n']['median'] / 1000:.2f} kN", "peak force, median"),
        *extras.figures(report),
    ]


def _parts(parts: Sequence[dict[str, Any]]) -> str:
    rows = [
        [
            f"<code>{escape(part['name'])}</code>",
            f"{part['held']} of {part['runs']}",
            escape(signed(part["median_lacking"], part["unit"])),
        ]
        for part in parts
    ]
    return page.table(["part", "#held", "#missed by"], rows)


def _runs(results: Sequence[SkillResult]) -> str:
    rows = []
    for r in results:
        name = f'<a href="{escape(r.video)}">{escape(r.id)}</a>' if r.video else escape(r.id)
        mark = page.span("good" if r.success else "bad", r.ended_by)
        forces = [f"{r.force_peak_n / 1000:.2f} kN", f"{r.force_total_n / 1000:.1f} kN"]
        rows.append([name, escape(r.layout), mark, str(r.steps), f"{r.reward:.2f}", *forces])
    heads = ["episode", "layout", "ended by", "#steps", "#reward", "#peak", "#total"]
    return page.table(heads, rows)
