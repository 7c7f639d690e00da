"""An invented report of a scenario with every possible key, and with markup in its texts.

The figures are consistent where those of a real report are.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from eval.analysing.bounds import decode
from eval.analysing.results import EpisodeResult
from eval.analysing.schema import Report
from eval.reporting import pages
from tpsrl.render.video import VideoWriter

ODD_ID = 'val <script>document.title="hit"</script> & "7"'
ODD_CAUSE = "holding(<b>obj_0</b>, robot_0)"
COMMAND = "tpsrl eval tidy_house seed=0 skills.pick=out/train/pick"
FINDINGS = [
    "Full success is 59.0% (118 of 200); 80.0% if nothing were lost between skills.",
    "navigate -> pick costs most: its tax is 8.0 points <em>(95% interval 3.0 to 13.0)</em>.",
    "Repairing navigate -> pick alone lifts full success from 59% to 68%.",
]
_NAMES = [
    (f"{verb} {what}_{number}", skill)
    for number in range(2)
    for verb, what, skill in (
        ("nav", "obj", "navigate"),
        ("pick", "obj", "pick"),
        ("nav", "goal", "navigate"),
        ("place", "obj", "place"),
    )
]
_THROUGH = (0.99, 0.9, 0.88, 0.8, 0.78, 0.68, 0.66, 0.6)


def rate(mean: float | None, half: float = 0.04) -> dict[str, float | None]:
    if mean is None:
        return {"mean": None, "ci_low": None, "ci_high": None}
    low, high = max(0.0, mean - half), min(1.0, mean + half)
    return {"mean": mean, "ci_low": low, "ci_high": high}


def _stages() -> list[dict[str, Any]]:
    rows, before = [], 1.0
    for index, ((name, skill), through) in enumerate(zip(_NAMES, _THROUGH, strict=True)):
        reached, succeeded = round(200 * before), round(200 * through)
        found = rate(succeeded / reached)
        row: dict[str, Any] = {"index": index, "name": name, "skill": skill}
        row |= {"reached": reached, "succeeded": succeeded, "rate": found["mean"]}
        row |= {"ci_low": found["ci_low"], "ci_high": found["ci_high"], "cumulative": through}
        row |= {"skill_succeeded": succeeded - 1, "skill_rate": found["mean"]}
        row |= {"skill_ci_low": found["ci_low"], "skill_ci_high": found["ci_high"]}
        rows.append(row | {"only_predicates": 1, "only_skill": 0})
        before = through
    return rows


def _handoffs() -> list[dict[str, Any]]:
    rows = []
    for index in range(len(_NAMES) - 1):
        (before, skill_from), (after, skill_to) = _NAMES[index], _NAMES[index + 1]
        tax = 0.08 if skill_to == "pick" else 0.01
        row: dict[str, Any] = {"index": index, "from": before, "to": after}
        row |= {"skill_from": skill_from, "skill_to": skill_to, "n": 180 - 10 * index}
        row |= {"rate_after_handoff": 0.97 - tax, "rate_isolated": 0.97, "tax": tax}
        row |= {"ci_low": tax - 0.05, "ci_high": tax + 0.05, "paired": 170 - 10 * index}
        rows.append(row | {"p_value": 0.002 if tax > 0.05 else 0.5, "significant": tax > 0.05})
    return rows


def _errors() -> list[dict[str, Any]]:
    kinds = {"distance": "m", "heading": "rad", "arm_rest": "m", "slip": "m"}
    kinds |= {"articulation": "rad", "view_blocked": "share"}
    rows = []
    for dimension, unit in kinds.items():
        rates = (rate(0.95), rate(0.88), rate(0.6, 0.12), rate(None))
        bins = [
            {"low": place / 4, "high": (place + 1) / 4, "n": n, "rate": found}
            for place, (n, found) in enumerate(zip((100, 70, 40, 0), rates, strict=True))
        ]
        row: dict[str, Any] = {"dimension": dimension, "unit": unit, "n": 210, "bins": bins}
        rows.append(row | {"median_before_success": 0.31, "median_before_failure": 0.72})
    return rows


def _matrix() -> list[dict[str, Any]]:
    def cell(before: str, after: str, tax: float | None, **more: Any) -> dict[str, Any]:
        isolated = rate(None if tax is None else 0.97, 0.02)
        row: dict[str, Any] = {"from": before, "to": after, "n": 346, "isolated": isolated}
        row |= {"after": rate(0.97 - (tax or 0.0)), "tax": tax}
        row |= {"ci_low": None if tax is None else tax - 0.05}
        row |= {"ci_high": None if tax is None else tax + 0.05}
        row |= {"p_value": None if tax is None else 0.3, "significant": False, "errors": []}
        return row | more

    worst = {"p_value": 0.0002, "significant": True, "errors": _errors()}
    return [
        cell("navigate", "pick", 0.08, **worst),
        cell("pick", "navigate", -0.01),
        cell("navigate", "place", 0.02, errors=_errors()[:2]),
        cell("place", "navigate", None),
        cell("open_fridge", "pick", 0.0),
    ]


def _propagation() -> dict[str, Any]:
    def part(kind: str, stage: int, value: float) -> dict[str, Any]:
        before, after = _NAMES[stage - 1] if stage else ("", ""), _NAMES[stage]
        where = {"from": before[0] or None, "to": after[0], "skill": after[1]}
        return {"kind": kind, "stage": stage, **where, "value": value}

    parts = [part("tax", 1, 0.08), part("selection", 3, 0.03), part("tax", 5, 0.07)]
    parts += [part("time", 6, 0.04), part("lost", 7, 0.012), part("made_good", 7, -0.02)]
    parts += [part("tax", 2, 0.002), part("tax", 4, -0.004)]
    found = {"measured": 0.59, "product_isolated": 0.8, "product_conditional": 0.6}
    return found | {"residual": -0.01, "loss": 0.21, "parts": parts}


def _flow() -> dict[str, Any]:
    causes = [
        ("cause:pick:timeout", "pick: timeout", 0.14, "stage:1"),
        (f"cause:pick:{ODD_CAUSE}:skill_force", f"{ODD_CAUSE}, skill_force", 0.1, "stage:5"),
        ("cause:<i>odd</i>", "place: <i>slipped & fell</i>", 0.08, "stage:3"),
        ("cause:navigate:stop", "navigate: skill_stop", 0.05, "stage:4"),
        ("cause:goal:lost", "goal 0: lost", 0.04, "stage:5"),
    ]
    nodes = [
        {"id": name, "kind": "cause", "label": label, "share": share}
        for name, label, share, _ in causes
    ]
    edges = [{"from": name, "to": stage, "share": share} for name, _, share, stage in causes]
    broke = {"stage:1": 0.14, "stage:3": 0.08, "stage:4": 0.05, "stage:5": 0.14}
    for name, share in broke.items():
        index = int(name[-1])
        label = f"{index + 1} {_NAMES[index][0]}"
        nodes.append({"id": name, "kind": "stage", "label": label, "share": share})
        edges.append({"from": name, "to": "end:failed", "share": share})
    nodes.append({"id": "end:failed", "kind": "end", "label": "failed", "share": 0.41})
    nodes.append({"id": "end:succeeded", "kind": "end", "label": "succeeded", "share": 0.59})
    return {"nodes": nodes, "edges": edges}


def _repairs() -> list[dict[str, Any]]:
    def row(kind: str, link: str, gain: float, shapley: float | None) -> dict[str, Any]:
        before, after = link.split(">")
        n = 60 if kind == "state" else 200
        found: dict[str, Any] = {"kind": kind, "from": before, "to": after, "n": n, "applied": 57}
        found |= {"before": 0.59, "after": 0.59 + gain, "gain": gain}
        found |= {"ci_low": gain - 0.04, "ci_high": gain + 0.04, "shapley": shapley}
        ends = (None, None) if shapley is None else (shapley - 0.04, shapley + 0.04)
        return found | {"shapley_ci_low": ends[0], "shapley_ci_high": ends[1]}

    return [
        row("state", "navigate>pick", 0.09, 0.085),
        row("state", "navigate>place", 0.02, 0.03),
        row("state", "others>others", -0.01, 0.0),
        row("effect", "navigate>pick", 0.12, None),
        row("effect", "pick>navigate", 0.03, None),
    ]


def _reel() -> list[dict[str, Any]]:
    clips = [
        {
            "episode": ODD_ID if number == 0 else f"val_{number}",
            "video": f"reel/clip {number} #<&.mp4",
            "poster": f"reel/000{number}.png",
            "text": f"{ODD_CAUSE}: 12.5 kN > 10 kN at step 412",
        }
        for number in range(3)
    ]
    groups: list[dict[str, Any]] = [
        {"cause": f"pick obj_0: {ODD_CAUSE}, skill_force", "count": 7, "clips": clips[:2]},
        {"cause": "nav obj_1: robot_at(obj_1), timeout", "count": 1, "clips": clips[2:]},
    ]
    return groups


def full_report() -> dict[str, Any]:
    """Returns a report with every key."""
    spread = {"mean": 1843.2, "median": 1801.0, "p90": 2400, "max": 3000}
    timeouts = {"ending": rate(0.59), "ignored": rate(0.64), "episodes": 28}
    timeouts |= {"reasons": {"skill_stop": 3, "timeout": 25}, "how": "Both from one run."}  # type: ignore[dict-item]
    causes = [
        {"stage": 1, "name": "pick obj_0", "skill": "pick", "predicate": ODD_CAUSE, "count": 20,
         "reason": "skill_force", "margin": -2.5, "unit": "kN"},
        {"stage": 4, "name": "nav obj_1", "skill": "navigate", "predicate": "robot_at(obj_1)",
         "reason": "timeout", "margin": -0.31, "unit": "m", "count": 9},
        {"stage": -1, "name": "", "skill": "", "predicate": "plan", "reason": "no_plan",
         "margin": None, "unit": "bool", "count": 1},
    ]  # fmt: skip
    gained = {
        "n": 60,
        "applied": 57,
        "before": 0.59,
        "after": 0.76,
        "gain": 0.17,
        "ci_low": 0.1,
        "ci_high": 0.24,
    }
    return {
        "scenario": "tidy_house",
        "title": "Tidy House",
        "protocol": "habitat",
        "protocol_changes": {"limits.episode_steps": 2500},
        "protocol_values": {"limits.episode_steps": 2500, "skills.navigate.reach_m": None},
        "engine": "mujoco",
        "split": "val",
        "seed": 0,
        "version": "0",
        "agent": "mixed",
        "learned": {
            "pick": {"checkpoint": "out/train/<pick>", "trained_steps": 2_000_000}
            | {"sample": False, "privileged": ["reach", "gap"], "policy": "0123456789ab"}
        },
        "stage_rule": "ever",
        "replan": False,
        "dataset": "0123456789ab",
        "settings_command": COMMAND,
        "num_episodes": 200,
        "success": rate(0.59, 0.07),
        "goals_met": 0.8,
        "timeouts": timeouts,
        "stages": _stages(),
        "stage_goals": [
            {"name": "stage_1", "episodes": 200, "reached": 150, "rate": 0.75}
            | {"ci_low": 0.69, "ci_high": 0.8}
        ],
        "analysis": {
            "episodes": 200,
            "repaired": {"state": 60, "effect": 200},
            "steps": 1_234_567,
            "budget": 2_000_000,
            "canonical": "The robot is put <where> the skill's own start states would have it.",
        },
        "handoffs": _handoffs(),
        "handoff_matrix": _matrix(),
        "propagation": _propagation(),
        "flow": _flow(),
        "repairs": _repairs(),
        "repair_all": {"state": gained, "effect": gained},
        "findings": FINDINGS,
        "blame": [
            {"skill": "pick", "set_up_by": "navigate", "count": 12},
            {"skill": "pick", "set_up_by": None, "count": 8},
        ],
        "reel": _reel(),
        "first_causes": causes,
        "steps": spread,
        "force": {"peak_n": spread, "total_n": spread},
        "clutter_moved": {"mean": 0.4, "none": 0.7, "objects": 25.0, "targets": 0.0},
        "view_blocked": {"mean": 0.12, "episodes": 190},
    }


def _record(number: int, success: bool) -> dict[str, Any]:
    done = len(_NAMES) if success else 1
    stages = [
        {"name": name, "skill": skill, "reached": index <= done, "succeeded": index < done,
         "skill_success": index < done, "ended_by": "success" if index < done else "skill_force",
         "attempts": 1, "steps": 90}
        for index, (name, skill) in enumerate(_NAMES)
    ]  # fmt: skip
    cause = {"stage": 1, "name": "pick obj_0", "skill": "pick", "predicate": ODD_CAUSE}
    cause |= {"margin": -2.5, "unit": "kN", "reason": "skill_force", "step": 412}  # type: ignore[dict-item]
    ended = {"success": success, "ended_by": "stop", "steps": 1800, "goals_met": 5}
    return {
        "id": ODD_ID if number == 0 else f"val_{number}",
        "layout": "set/<one>",
        "success": success,
        "ended_by": "stop" if success else "timeout",
        "steps": 1800,
        "plans": 1,
        "goals": 5,
        "goals_met": 5 if success else 0,
        "stages": stages,
        "first_cause": None if success else cause | {"recovered": False},
        "cause_text": None if success else f"{ODD_CAUSE}: 12.5 kN > 10 kN at step 412",
        "set_up_by": "navigate" if number == 0 else None,
        "force_peak_n": 12500.0,
        "force_total_n": 20000.0,
        "stage_goals": {"stage_1": success},
        "video": f"videos/000{number}.mp4" if number < 2 else None,
        "timeouts": {"first": None if success else cause, "ending": ended, "ignored": ended},
        "clutter_moved": number,
        "clutter": 25,
        "targets_moved": 0,
        "view_blocked": 0.1,
    }


def full_records() -> list[dict[str, Any]]:
    """Returns records of six episodes, the first of which failed and has an odd id."""
    return [_record(number, success=number % 3 > 0) for number in range(6)]


def rendered(report: Any = None, records: Any = None) -> str:
    """Returns the page of a report and records, given as in their files."""
    results = [decode(record, EpisodeResult, "report") for record in records or full_records()]
    return pages.scenario(decode(report or full_report(), Report, "report"), results)


def write_files(folder: Path) -> None:
    """Writes report.json, episodes.jsonl, and the videos and pictures that they reference."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(full_report(), indent=2) + "\n")
    lines = [json.dumps(record) + "\n" for record in full_records()]
    (folder / "episodes.jsonl").write_text("".join(lines))
    clips = [clip for group in _reel() for clip in group["clips"]]
    films = [clip["video"] for clip in clips]
    films += [record["video"] for record in full_records() if record["video"]]
    for place, film in enumerate(films):
        with VideoWriter(folder / film) as writer:
            for step in range(4):
                writer.add(np.full((72, 128, 3), 40 * (place + 1) + step, dtype=np.uint8))
    for clip in clips:
        Image.new("RGB", (128, 72), (200, 120, 40)).save(folder / clip["poster"])
