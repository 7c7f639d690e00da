import dataclasses
import json
import xml.etree.ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kinematic_home as fake
import numpy as np
import pytest
from msgspec import structs
from rich.console import Console

from eval.analysing.bounds import decode, encode
from eval.analysing.schema import SkillPart, SkillRan
from eval.analysing.skill_results import SkillResult, parts
from eval.reporting import words
from eval.running import agents, reports
from eval.running.skill_evaluator import evaluate_skill, obtain, path, path_intervals, summarise
from eval.running.skill_runs import SkillJob, environment, run_job
from eval.settings import SkillSettings
from skills.core.conditions import Margin
from skills.core.interface import SkillGoal
from skills.starts.recorded import save_starts
from skills.starts.start import Start
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.world import action as layout


@dataclasses.dataclass(frozen=True)
class Fake:
    """Builds workers with a home without physics; in odd episodes the policy does nothing."""

    settings: SkillSettings

    def __call__(self) -> Callable[[SkillJob], SkillResult]:
        return self.work

    def work(self, job: SkillJob) -> SkillResult:
        odd = int(job.episode.id[-1]) % 2 == 1
        return run_job(self.settings, fake.PicturedHome(), fake.Idle() if odd else fake.Grab(), job)


RAN = decode(
    {
        "skill": "pick",
        "title": "Pick",
        "protocol": "habitat",
        "protocol_changes": {},
        "protocol_values": {},
        "engine": "mujoco",
        "split": "val",
        "seed": 0,
        "version": "0",
        "agent": "scripted",
        "learned": {},
        "dataset": "0",
    },
    SkillRan,
    "report",
)


def start(index: int = 0) -> Start:
    """Returns a start state with the robot 0.8 m in front of its first object."""
    episode = fake.make_episode(2, 1, id=f"test/{index}", robot_start=(0.0, 1.2, np.pi / 2))
    return Start(episode, SkillGoal(0, (0.0, 2.0, 0.8)))


def recorded(index: int = 0) -> Start:
    """Returns the start state of `start` with the snapshot of a home."""
    given, home = start(index), fake.PicturedHome()
    home.reset([0], [given.episode])
    return dataclasses.replace(given, snapshot=home.snapshot(0))


def settings(skill: str, *overrides: str) -> SkillSettings:
    return config.load(SkillSettings, config.parse([f"skill={skill}", *overrides]))


def run(skill: str, policy: Any, *overrides: str, at: Start | None = None) -> SkillResult:
    chosen = settings(skill, *overrides)
    return run_job(chosen, fake.PicturedHome(), policy, SkillJob(at or start(), None))


def test_a_successful_skill_reports_that_every_part_holds():
    result = run("pick", fake.Grab())
    assert result.success and result.ended_by == "success" and result.first_cause is None
    assert set(result.parts) == {"holding", "intact", "rest"}
    assert all(margin.holds for margin in result.parts.values())
    assert result.reward > 10.0


@pytest.mark.slow
def test_the_protocol_sets_the_step_limit_of_a_skill():
    assert run("pick", fake.Idle(), "protocol.alone.pick.steps=7").steps == 7
    assert run("pick", fake.Idle()).steps == 300
    assert run("pick", fake.Idle(), "protocol=m3").steps == 200


def test_the_protocol_sets_success_thresholds_and_force_limits():
    env = environment(settings("pick", "protocol=m3"), fake.PicturedHome(), start())
    assert env.batch.thresholds.rest_m == 0.05
    assert env.batch.settings.force_total_n == 5000.0
    assert env.batch.settings.force_instant_n is None
    strict = run("pick", fake.Grab(), "protocol.skills.pick.rest_m=0.0")
    assert (strict.ended_by, strict.first_cause and strict.first_cause.predicate) == (
        "timeout",
        "rest",
    )


def test_mshab_also_requires_the_arms_posture_of_pick():
    result = run("pick", fake.Grab(), "protocol=mshab")
    assert set(result.parts) == {"holding", "intact", "rest", "posture", "still"}
    assert result.first_cause is not None and result.first_cause.predicate == "posture"


def test_the_first_cause_is_the_first_part_that_did_not_hold():
    result = run("pick", fake.Idle(), "protocol.alone.pick.steps=3")
    cause = result.first_cause
    assert cause is not None
    assert (cause.skill, cause.predicate, cause.reason, cause.unit) == (
        "pick",
        "holding",
        "timeout",
        "bool",
    )


def test_navigate_reports_distance_driven_and_spl():
    far = fake.make_episode(2, 1, robot_start=(0.0, -1.0, np.pi / 2))
    goal = SkillGoal(0, (0.0, 2.0, 0.8))
    result = run("navigate", fake.Drive(), at=Start(far, goal))
    assert result.success and result.path is not None
    assert result.path["driven_m"] == pytest.approx(3.0 - 0.6, abs=0.1)
    assert 0.0 < result.path["spl"] <= 1.0


def test_means_of_path_metrics_have_intervals_where_the_values_differ():
    ways = [{"spl": 0.0, "driven_m": 2.0}, {"spl": 1.0, "driven_m": 2.0}] * 50
    found = path_intervals(ways)
    assert found is not None and found.keys() == {"spl"}
    # A share of 0.5 of 100 runs has the interval 0.5 -+ 1.96 x 0.05.
    assert found["spl"].ci_low == pytest.approx(0.40, abs=0.015)
    assert found["spl"].ci_high == pytest.approx(0.60, abs=0.015)
    assert path_intervals([]) is None and path([]) is None
    # The map had no path to the goal of one run.
    less = [{"driven_m": 5.0}, *ways[:4]]
    assert path(less) == {"spl": 0.5, "driven_m": 2.6}
    result = run("navigate", fake.Idle(), "protocol.alone.navigate.steps=1")
    report = structs.replace(summarise(RAN, [result]), path={"spl": 0.5}, path_intervals=None)
    assert words.driving(report) == ("SPL", "0.50", "")  # a report of an older version
    shown = words.driving(structs.replace(report, path_intervals=found))
    assert shown is not None and shown[:2] == ("SPL", "0.50") and shown[2].count(" to ") == 1


@pytest.mark.slow
def test_a_recorded_start_is_chosen_by_its_number_or_id(tmp_path: Path) -> None:
    file, out = tmp_path / "starts.npz", f"out={tmp_path / 'out'}"
    save_starts(file, [recorded(i) for i in range(3)])
    one = recorded(2).episode.id
    for given in ("episode=2", f"episode={one}"):
        chosen = settings("pick", f"starts={file}", out, "processes=1", "replace=true", given)
        report = evaluate_skill(chosen, Console(quiet=True), Fake)
        (line,) = (tmp_path / "out" / "episodes.jsonl").read_text().splitlines()
        assert (report.num_episodes, json.loads(line)["id"]) == (1, one)
    for given, message in (
        (["episode=9"], "episode: unknown value '9'"),
        (["episode=1", "num_episodes=2"], "is one episode, 2 requested"),
    ):
        with pytest.raises(UserError, match=message):
            obtain(settings("pick", f"starts={file}", *given))


def test_a_start_drawn_by_the_skill_is_chosen_by_its_number_or_id() -> None:
    (first,) = obtain(settings("pick", "episode=1", "num_objects=4"))
    (again,) = obtain(settings("pick", f"episode={first.episode.id}", "num_objects=4"))
    assert first.episode == again.episode and first.episode.id.startswith("pick_000001_of_")
    with pytest.raises(UserError, match="episode: 'none' is not an episode of pick; give"):
        obtain(settings("pick", "episode=none"))


@pytest.mark.slow
def test_agents_are_compared_on_a_single_skill(tmp_path: Path) -> None:
    file = tmp_path / "starts.npz"
    save_starts(file, [recorded(i) for i in range(3)])
    folders = []
    for number in range(2):
        folders.append(str(tmp_path / f"agent{number}"))
        chosen = settings("pick", f"starts={file}", f"out={folders[-1]}", "processes=1")
        evaluate_skill(chosen, Console(quiet=True), Fake)
    console = Console(record=True, width=120)
    report = reports.compare(folders, str(tmp_path / "out"), console)
    assert (report.skill, report.num_episodes, report.episodes) == ("pick", 3, [])
    assert [part.held for part in report.agents[0].parts] == [
        part.held for part in report.agents[1].parts
    ]
    html = (tmp_path / "out" / "report.html").read_text()
    assert "Parts of success side by side" in html and "Stages side by side" not in html
    before = (tmp_path / "out" / "report.json").read_bytes()
    reports.rebuild(str(tmp_path / "out"), Console(quiet=True))
    assert (tmp_path / "out" / "report.html").read_text() == html
    assert (tmp_path / "out" / "report.json").read_bytes() == before


@pytest.mark.slow
def test_a_missing_video_encoder_is_reported_before_the_first_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(tmp_path / "nowhere"))
    chosen = settings("pick", f"out={tmp_path}/out", "videos=1")
    with pytest.raises(UserError, match=r"^videos: .*IMAGEIO_FFMPEG_EXE"):
        evaluate_skill(chosen, Console(quiet=True), Fake)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_report_equals_counts_by_hand(tmp_path: Path):
    file = tmp_path / "starts.npz"
    save_starts(file, [recorded(i) for i in range(3)])
    out = tmp_path / "out"
    chosen = settings("pick", f"starts={file}", f"out={out}", "processes=1", "videos=1")
    report = evaluate_skill(chosen, Console(quiet=True), Fake)
    assert json.loads((out / "report.json").read_text()) == encode(report)
    assert report.num_episodes == 3 and report.success.mean == 2 / 3
    assert report.ends == {"success": 2, "timeout": 1}
    assert [(c.predicate, c.count) for c in report.first_causes] == [("holding", 1)]
    assert report.protocol == "habitat"
    assert report.num_objects == len(start().episode.objects)
    assert report.protocol_values["alone.pick.steps"] == 300
    records = [json.loads(line) for line in (out / "episodes.jsonl").read_text().splitlines()]
    assert [r["success"] for r in records] == [True, False, True]
    assert (out / "videos" / "0000.mp4").stat().st_size > 0
    html = (out / "report.html").read_text()
    assert f"3 episodes from {file}" in html
    assert "alone.pick.steps" in html
    body = html[html.index("<main>") : html.index("</main>") + 7].replace("video controls", "video")
    xml.etree.ElementTree.fromstring(body)


@pytest.mark.slow
def test_the_report_is_the_same_for_any_number_of_processes(tmp_path: Path):
    file = tmp_path / "starts.npz"
    save_starts(file, [recorded(i) for i in range(3)])
    outputs = []
    for processes in (1, 2):
        out = tmp_path / str(processes)
        short = "protocol.alone.pick.steps=20"
        chosen = settings("pick", f"starts={file}", f"out={out}", f"processes={processes}", short)
        evaluate_skill(chosen, Console(quiet=True), Fake)
        names = ("report.json", "report.html", "episodes.jsonl")
        outputs.append([(out / name).read_bytes() for name in names])
        (out / "report.html").unlink()
        reports.rebuild(str(out), Console(quiet=True))
        assert (out / "report.html").read_bytes() == outputs[-1][1]
    assert outputs[0] == outputs[1]


@pytest.mark.slow
def test_an_evaluation_with_other_settings_is_kept(tmp_path: Path) -> None:
    file, out = tmp_path / "starts.npz", tmp_path / "out"
    save_starts(file, [recorded(i) for i in range(3)])

    def evaluated(*words: str) -> dict[str, Any]:
        given = [f"starts={file}", f"out={out}", "processes=1", *words]
        evaluate_skill(settings("pick", *given), Console(quiet=True), Fake)
        found: dict[str, Any] = json.loads((out / "report.json").read_text())
        return found

    evaluated("num_episodes=2")
    before = (out / "report.json").read_bytes()
    for changed, named in (
        (["protocol.skills.pick.rest_m=0.2"], "protocol.skills.pick.rest_m: 0.15, now 0.2"),
        (["num_episodes=1"], "num_episodes: 2, now 1"),
        (["episode=0"], "num_episodes: 2, now 1; episode: None, now 0"),
    ):
        with pytest.raises(UserError, match=f"holds an evaluation .*{named}.*replace=true"):
            evaluated(*changed)
        assert (out / "report.json").read_bytes() == before
    assert evaluated("num_episodes=2", "videos=1")["num_episodes"] == 2
    assert evaluated("num_episodes=3", "videos=2")["num_episodes"] == 3
    assert evaluated("num_episodes=1", "replace=true")["num_episodes"] == 1
    assert "replace: false" in (out / "config.yaml").read_text()


def test_more_start_states_than_the_file_holds_are_refused(tmp_path: Path):
    file = tmp_path / "starts.npz"
    save_starts(file, [recorded()])
    with pytest.raises(UserError, match="contains 1 start states, 2 were requested"):
        evaluate_skill(
            settings("pick", f"starts={file}", "num_episodes=2", f"out={tmp_path}/out"),
            Console(quiet=True),
            Fake,
        )


def test_parts_count_how_often_they_held_and_the_median_margin_of_failures():
    lacking = [-0.5, -0.1, 0.2]
    results = [
        dataclasses.replace(
            run("pick", fake.Idle(), "protocol.alone.pick.steps=1"),
            parts={"rest": Margin(margin > 0, margin, "m")},
        )
        for margin in lacking
    ]
    (row,) = parts(results)
    assert row == SkillPart("rest", "m", 1, 3, pytest.approx(-0.3))
    summary = summarise(RAN, results)
    assert summary.success.mean == 0.0 and summary.path is None


@pytest.mark.parametrize(
    ("agent", "skill", "nearest"),
    [("radnom", "pick", "random"), ("goal_folower", "pointnav", "goal_follower")],
)
def test_an_unknown_agent_is_refused_with_the_nearest_name(agent: str, skill: str, nearest: str):
    with pytest.raises(UserError, match=f"did you mean '{nearest}'"):
        agents.make_for_skill(agent, skill)


def test_an_action_of_the_wrong_shape_is_reported_with_its_episode():
    class Broken(fake.Idle):
        def act(self, world: Any, depth: Any = None) -> np.ndarray:
            return np.full(layout.SIZE - 1, 0.0)

    with pytest.raises(UserError, match="episode test/0: actions: shape is"):
        run("pick", Broken())
