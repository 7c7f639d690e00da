"""`report.html` of a skill that was run by itself."""

from collections.abc import Sequence
from typing import Any

from eval.reporting import blocks, extras, films, page, words
from eval.reporting.markup import Markup
from eval.reporting.words import percent, signed

_PARTS_NOTE = """In how many runs each part of success held at the end, and by how much it was
missed where it did not, the median. Success asks for all of them in one step."""
_CAUSES_NOTE = """The first part that was missing in each failed run, and how the run ended. The
margin is what was missing, the median over the runs."""
_RUNS_NOTE = "Forces are the largest of one contact, and the sum of its rises by more than 20 N."


def render(report: dict[str, Any], records: Sequence[dict[str, Any]]) -> str:
    """The page; `report` and `records` are those of its files.

    Links to videos are relative to the folder that the page lies in.
    """
    causes = page.causes(report["first_causes"])
    sections = [
        blocks.headline(_figures(report)),
        blocks.section("Parts of success", _PARTS_NOTE, _parts(report["parts"])),
        blocks.section("First causes of failure", _CAUSES_NOTE, causes),
        films.videos(records),
        blocks.section("Runs", _RUNS_NOTE, _runs(records)),
        blocks.protocol(report),
    ]
    facts = blocks.common_facts(report)
    return blocks.shell(f"{report['title']}, {report['agent']} agent", facts, sections)


def _figures(report: dict[str, Any]) -> list[tuple[str, str]]:
    success, count = report["success"], report["num_episodes"]
    driving = []
    if report["path"] is not None:
        name, figure, sure = words.driving(report)
        driving = [(figure, f"{name}, 95% interval {sure}" if sure else f"{name}, mean")]
    return [
        (percent(success["mean"]), f"success, 95% interval {words.interval(success)}"),
        (f"{round(success['mean'] * count)} of {count}", "runs"),
        (f"{report['steps']['mean']:.0f}", "control steps, mean"),
        (f"{report['reward']['mean']:.2f}", "reward, mean"),
        *driving,
        (f"{report['force']['peak_n']['median'] / 1000:.2f} kN", "peak force, median"),
        *extras.figures(report),
    ]


def _parts(parts: Sequence[dict[str, Any]]) -> Markup:
    rows = [
        [
            blocks.named(words.plain(part["name"]), part["name"]),
            f"{part['held']} of {part['runs']}",
            signed(part["median_lacking"], part["unit"]),
        ]
        for part in parts
    ]
    return blocks.table(["part", "#held", "#missed by"], rows)


def _runs(records: Sequence[dict[str, Any]]) -> Markup:
    rows: list[list[object]] = []
    for run in records:
        film = run.get("video")
        name = blocks.anchor(film, run["id"]) if film else run["id"]
        mark = blocks.outcome(run["success"], words.reason(run["ended_by"]))
        forces = [f"{run['force_peak_n'] / 1000:.2f} kN", f"{run['force_total_n'] / 1000:.1f} kN"]
        figures = [run["steps"], f"{run['reward']:.2f}", *forces]
        rows.append([blocks.long_name(name), blocks.long_name(run["layout"]), mark, *figures])
    heads = ["episode", "layout", "ended by", "#steps", "#reward", "#peak", "#total"]
    return blocks.table(heads, rows, "Runs")
