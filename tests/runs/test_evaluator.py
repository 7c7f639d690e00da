import dataclasses
import gzip
import json
import math
import os
import re
import signal
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import kinematic_home as fake
import numpy as np
import pytest
import yaml
from fake_evaluation import Fake, Refusing, quiet, settings
from rich.console import Console

from eval.analysing.bounds import encode
from eval.analysing.results import EpisodeResult
from eval.analysing.schema import ViewBlocked
from eval.presets import AgentPreset
from eval.protocols import Protocol
from eval.running import agents, chains, episodes, film, reports, view
from eval.running.evaluator import EpisodeJob, evaluate
from eval.running.several import evaluate_skills
from eval.settings import EvalSettings, SkillSettings, SkillsSettings
from planner.execution.executor import Executor
from planner.execution.limits import execution_limits
from planner.execution.progress import StepInfo
from planner.predicates import PredicateThresholds
from skills import registry, tables
from skills.core.conditions import Margin
from skills.spec import SkillSpec
from tpsrl import config
from tpsrl.errors import RunError, UserError
from tpsrl.sim import datasets
from tpsrl.sim.base import HomeLost
from tpsrl.world.episode import Episode, load_episodes, save_episodes
from tpsrl.world.generator import Source
from tpsrl.world.scenarios import load_scenario


class Dying(Fake):
    """Worker whose process is killed in its second episode."""

    def work(self, job: EpisodeJob) -> EpisodeResult:
        if job.episode.id == "test/1":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().work(job)


class Losing(Fake):
    """Worker whose home is lost in its second episode."""

    def work(self, job: EpisodeJob) -> EpisodeResult:
        if job.episode.id == "test/1":
            raise HomeLost("episode test/1: the process was ended by signal <11>")
        return super().work(job)


@pytest.mark.parametrize("processes", [1, 2])
def test_an_episode_whose_home_is_lost_is_reported_and_not_counted(
    dataset: Path, tmp_path: Path, processes: int
) -> None:
    console, out = Console(record=True, width=200), tmp_path / "out"
    report = evaluate(settings(dataset, out, f"processes={processes}"), console, Losing)
    assert report.num_episodes == 2 and report.success.mean == 1.0
    assert [encode(one) for one in report.lost or []] == [
        {"episode": "test/1", "cause": "the process was ended by signal <11>"}
    ]
    assert "lost and not counted: 1 of 3 episodes" in console.export_text()
    page = (out / "report.html").read_text()
    assert "lost test/1: the process was ended by signal &lt;11&gt;" in page
    reports.rebuild(str(out), quiet())
    assert (out / "report.html").read_text() == page


def test_the_report_is_the_same_for_any_number_of_processes(dataset: Path, tmp_path: Path) -> None:
    outputs = []
    for processes in (1, 2):
        out = tmp_path / str(processes)
        evaluate(settings(dataset, out, f"processes={processes}"), quiet(), Fake)
        names = ("report.json", "report.html", "episodes.jsonl")
        outputs.append([(out / name).read_bytes() for name in names])
        (out / "report.html").unlink()
        reports.rebuild(str(out), quiet())
        assert (out / "report.html").read_bytes() == outputs[-1][1]
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize(("option", "expected"), [("processes=1", 1), ("processes=0", None)])
def test_episodes_are_generated_by_the_given_number_of_processes(
    dataset: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    expected: int | None,
) -> None:
    made_by: list[int | None] = []

    def load(*arguments: Any) -> list[Episode]:
        made_by.append(arguments[-1])
        return load_episodes(dataset)

    monkeypatch.setattr(datasets, "load", load)
    overrides = ["scenario=tidy_house", "analysis_episodes=0", f"out={tmp_path / 'out'}", option]
    evaluate(config.load(EvalSettings, config.parse(overrides)), quiet(), Fake)
    assert made_by == [expected]


def test_the_output_files_contain_the_evaluated_episodes(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = evaluate(settings(dataset, out, "processes=1", "num_episodes=2"), quiet(), Fake)
    assert json.loads((out / "report.json").read_text()) == encode(report)
    records = [json.loads(line) for line in (out / "episodes.jsonl").read_text().splitlines()]
    assert [r["id"] for r in records] == ["test/0", "test/1"]
    assert [r["success"] for r in records] == [True, False]
    assert yaml.safe_load((out / "config.yaml").read_text())["num_episodes"] == 2
    assert len(json.loads((out / "timing.json").read_text())["episode_seconds"]) == 2
    assert not (out / "videos").exists()


def test_the_requested_number_of_episodes_is_filmed(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    evaluate(settings(dataset, out, "processes=1", "videos=2", "video_stride=10"), quiet(), Fake)
    assert sorted(p.name for p in (out / "videos").iterdir()) == ["0000.mp4", "0001.mp4"]
    record = json.loads((out / "episodes.jsonl").read_text().splitlines()[1])
    assert record["video"] == "videos/0001.mp4"
    frames, _ = imageio_ffmpeg.count_frames_and_secs(str(out / record["video"]))
    assert frames == math.ceil(record["steps"] / 10) + 12  # the verdict is shown for 2 s
    fewer = settings(dataset, out, "processes=1", "num_episodes=1", "replace=true")
    evaluate(fewer, quiet(), Fake)
    assert not (out / "videos").exists()


def test_the_report_counts_and_names_failures(dataset: Path, tmp_path: Path) -> None:
    report = evaluate(settings(dataset, tmp_path / "out", "processes=1"), quiet(), Fake)
    assert report.success.mean == 2 / 3
    assert [s.name for s in report.stages][:4] == [
        "nav obj_0",
        "pick obj_0",
        "nav goal_0",
        "place obj_0",
    ]
    causes = report.first_causes
    assert sum(c.count for c in causes) == 1
    assert all(c.predicate and c.reason for c in causes)
    assert all("cracker" not in c.predicate for c in causes)


def test_a_step_limit_is_reported_as_first_cause(dataset: Path, tmp_path: Path) -> None:
    limited = settings(dataset, tmp_path / "out", "processes=1", "protocol.limits.episode_steps=20")
    report = evaluate(limited, quiet(), Fake)
    assert report.success.mean == 0.0
    assert [(c.reason, c.count) for c in report.first_causes] == [("episode_steps", 3)]
    assert report.protocol_changes == {"limits.episode_steps": 20}


def test_an_episode_continues_after_a_timeout_by_default(dataset: Path, tmp_path: Path) -> None:
    limited = "processes=1", "num_episodes=1", "protocol.limits.pick.steps=3"
    report = evaluate(settings(dataset, tmp_path / "on", *limited, "videos=1"), quiet(), Fake)
    found = report.timeouts
    assert (found.episodes, found.ending.mean, found.ignored.mean) == (1, 0.0, 1.0)
    (record,) = read(tmp_path / "on")
    assert record["ended_by"] == "timeout" and record["timeouts"]["first"]["name"] == "pick obj_0"
    assert record["timeouts"]["ignored"]["ended_by"] == "stop"
    frames, _ = imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "on" / record["video"]))
    # The film ends with the episode, and with its verdict for 2 s.
    assert frames == math.ceil(record["steps"] / 4) + 30
    off = settings(dataset, tmp_path / "off", *limited, "after_timeout=false")
    assert evaluate(off, quiet(), Fake).timeouts.ignored is None
    (stopped,) = read(tmp_path / "off")
    changed = {key for key in record if record[key] != stopped[key]}
    assert changed == {"video", "timeouts"}


def test_the_blocked_share_of_the_view_is_measured_if_requested(
    dataset: Path, tmp_path: Path
) -> None:
    class Dark(fake.PicturedHome):
        """Home in which the held object fills the lower part of the image."""

        def depth(self, env_ids: Any, height: int = 64, width: int = 64) -> np.ndarray:
            self.looks = getattr(self, "looks", 0) + 1
            picture = np.full((1, height, width), 0.5, dtype=np.float32)
            picture[:, : 0 if self.looks > 3 else height // 2 + 1] = 0.03
            return picture

    home = Dark()
    watch = view.ViewWatch(home, every=2)
    info: Any = None
    home.reset([0], [fake.make_episode()])
    free, held = home.state([0]), home.state([0])
    held.held[0] = 1
    for world in (free, held, held, free, *[held] * 8):
        watch.on_step(world, info)
    assert (home.looks, watch.share) == (5, 3 / 5)
    assert view.ViewWatch(home, 2).share is None
    out = tmp_path / "out"
    seen = evaluate(settings(dataset, out, "processes=1", "measure_view=true"), quiet(), Fake)
    assert seen.view_blocked == ViewBlocked(0.0, 3)
    assert all(record["view_blocked"] == 0.0 for record in read(out))


def read(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "episodes.jsonl").read_text().splitlines()]


def test_a_dead_worker_ends_the_run_and_leaves_no_report(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"died while working on episode test/1: signal SIGKILL"):
        evaluate(settings(dataset, tmp_path / "out", "processes=2"), quiet(), Dying)
    # The other worker may have finished an episode by then; that episode is kept.
    assert [path for path in tmp_path.glob("out/*") if path.name != ".running"] == []


def test_an_invalid_episode_leaves_an_earlier_report_unchanged(
    dataset: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    evaluate(settings(dataset, out, "processes=1"), quiet(), Fake)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(UserError, match="overlaps the sofa"):
        evaluate(settings(dataset, out, "processes=1", "videos=1"), quiet(), Refusing)
    left = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    assert left == before


def test_simulated_episodes_give_the_same_report_in_one_or_two_processes(tmp_path: Path) -> None:
    path = tmp_path / "two.jsonl.gz"
    drawn, _ = datasets.generate(
        Source(load_scenario("tidy_house"), "val", 7), range(2), processes=1
    )
    save_episodes(path, drawn)
    outputs = []
    for processes in (1, 2):
        out = tmp_path / str(processes)
        few = f"processes={processes}", "protocol.limits.episode_steps=150"
        report = evaluate(settings(path, out, *few), quiet())
        assert report.steps.max == 150
        assert report.stages[0].reached == 2
        outputs.append([(out / name).read_bytes() for name in ("report.json", "episodes.jsonl")])
    assert outputs[0] == outputs[1]


def test_more_episodes_than_the_file_holds_are_refused(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="contains 3 episodes, 6 requested"):
        evaluate(settings(dataset, tmp_path / "out", "num_episodes=6"), quiet(), Fake)
    assert not (tmp_path / "out").exists()


def test_a_file_of_another_split_is_refused(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"but 3 of tidy_house, split val; choose split=val"):
        evaluate(settings(dataset, tmp_path / "out", "split=train"), quiet(), Fake)
    with pytest.raises(UserError, match=r"no episode of set_table.*; import it with scenario=set_"):
        evaluate(settings(dataset, tmp_path / "out", "scenario=set_table"), quiet(), Fake)


def test_episodes_of_other_splits_in_a_file_are_left_out_and_counted(tmp_path: Path) -> None:
    path, one = tmp_path / "set.jsonl.gz", fake.make_episode
    others = [one(id="test/2", split="train"), one(id="test/4", scenario="set_table")]
    save_episodes(path, [others[0], one(id="test/6"), others[1]])
    report = evaluate(settings(path, tmp_path / "out", "processes=1"), quiet(), Fake)
    assert report.num_episodes == 1
    assert report.left_out == {"set_table, split val": 1, "tidy_house, split train": 1}
    assert "of the file left out" in (tmp_path / "out" / "report.html").read_text()


def test_all_invalid_episodes_are_listed_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, one = tmp_path / "set.jsonl.gz", fake.make_episode
    wall = one(id="test/2", robot_start=(0.0, 2.0, 0.0))
    idle = one(id="test/4", targets=())
    save_episodes(path, [one(id="test/0"), wall, idle, one(id="test/6")])
    lines = gzip.decompress(path.read_bytes()).replace(b'"test/6"', b"6")
    path.write_bytes(gzip.compress(lines))
    with pytest.raises(UserError, match=r"3 of 4 episodes are invalid .*skip_invalid=true"):
        evaluate(settings(path, tmp_path / "out", "processes=1"), Console(width=200), Refusing)
    printed = capsys.readouterr().out
    names = re.findall(r"^  (line \d|test/\d): ", printed, re.MULTILINE)
    assert names == ["line 5", "test/2", "test/4"]
    skipping = settings(path, tmp_path / "out", "processes=1", "skip_invalid=true")
    report = evaluate(skipping, quiet(), Fake)
    assert report.num_episodes == 1
    assert list(report.invalid) == ["line 5", "test/2", "test/4"]


@pytest.mark.parametrize("field", ["robot_start", "objects[0].pos", "targets[0].goal"])
def test_an_episode_with_a_position_outside_the_apartment_is_invalid(
    field: str, tmp_path: Path
) -> None:
    path, inside = tmp_path / "set.jsonl.gz", fake.make_episode(id="test/0", num_targets=1)
    far = (99.0, 0.0, 0.5)
    placed = dataclasses.replace(inside.objects[0], pos=far)
    target = dataclasses.replace(inside.targets[0], goal=far)
    changes: dict[str, dict[str, Any]] = {
        "robot_start": {"robot_start": far},
        "objects[0].pos": {"objects": (placed, *inside.objects[1:])},
        "targets[0].goal": {"targets": (target,)},
    }
    outside = dataclasses.replace(inside, id="test/2", **changes[field])
    save_episodes(path, [inside, outside])
    message = f"test/2: {field}: (99.00, 0.00) is outside of {inside.layout}"
    with pytest.raises(UserError, match=re.escape(message)):
        evaluate(settings(path, tmp_path / "out", "processes=1"), quiet(), Fake)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("domain", "(define (domain d)", "line 1, column 1: the bracket is never closed"),
        ("domain", "(define (domain d))", "predicate 'closed_cab' of the problem is not declared"),
        ("plan", "(pick", "line 1, column 1: the bracket is never closed"),
        ("plan", "(nav goal_0)", "line 1, column 1: nav takes 2 entities, 1 given"),
    ],
)
def test_a_faulty_domain_or_plan_is_not_blamed_on_the_episodes(
    key: str, text: str, message: str, dataset: Path, tmp_path: Path, capsys: Any
) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        evaluate(settings(dataset, tmp_path / "out", f"{key}={path}"), Console(), Fake)
    assert str(error.value).startswith(f"{key}: {path}") and message in str(error.value)
    assert "invalid" not in capsys.readouterr().out and not (tmp_path / "out").exists()


def test_a_home_lost_during_validation_does_not_make_its_episode_invalid(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crashing(fake.KinematicHome):
        def reset(self, env_ids: Any, episodes: Any) -> None:
            raise HomeLost("the process was ended by signal 11")

    monkeypatch.setattr(chains, "make_simulator", lambda settings: Crashing())
    report = evaluate(settings(dataset, tmp_path / "out", "processes=1"), quiet(), Fake)
    assert report.num_episodes == 3 and not report.invalid and not report.lost


def test_episodes_solved_at_the_start_are_counted_separately(tmp_path: Path) -> None:
    path, normal = tmp_path / "set.jsonl.gz", fake.make_episode(id="test/1", num_targets=1)
    there = dataclasses.replace(normal.targets[0], goal=normal.objects[0].pos)
    save_episodes(path, [normal, dataclasses.replace(normal, id="test/0", targets=(there,))])
    report = evaluate(settings(path, tmp_path / "out", "processes=1"), quiet(), Fake)
    assert report.success.mean == 0.5 and report.title == "Tidy House, 1 target"
    assert report.solved_at_start.episodes == 1 and report.solved_at_start.others.mean == 0.0


def test_the_report_contains_the_versions_of_the_libraries(dataset: Path, tmp_path: Path) -> None:
    report = evaluate(settings(dataset, tmp_path / "out", "processes=1"), quiet(), Fake)
    assert report.versions["numpy"] == np.__version__
    assert set(report.versions) == {"mujoco", "numba", "numpy", "torch"}


def test_the_digest_differs_between_datasets() -> None:
    one, other = fake.make_episode(), fake.make_episode(robot_start=(0.0, 0.1, 0.0))
    assert episodes.digest([one]) == episodes.digest([fake.make_episode()])
    assert episodes.digest([one]) != episodes.digest([other])
    assert episodes.digest([one, other]) != episodes.digest([other, one])


def test_protocol_habitat_has_the_thresholds_of_the_benchmark() -> None:
    protocol = config.load_preset("protocol", "habitat", Protocol)
    assert protocol.skills == tables.thresholds()
    assert protocol.predicates == PredicateThresholds(2.0, 0.3, 0.35, 0.15, 1.07, 0.15)
    assert protocol.limits == execution_limits()
    assert protocol.rules(False, {}).add_arm_rest
    assert protocol.changes() == {}


def test_a_caption_names_the_step_and_its_unmet_condition() -> None:
    home, episode = fake.KinematicHome(), fake.make_episode()
    home.reset([0], [episode])
    info = StepInfo(
        index=1,
        total=8,
        name="pick obj_0",
        action="pick(obj_0_003_cracker_box, robot_0)",
        skill="pick",
        phase="skill",
        phase_step=30,
        phase_limit=200,
        episode_step=90,
        predicate="robot_at(obj_0_003_cracker_box, robot_0)",
        margin=Margin(False, -1.204, "m"),
    )
    caption = film.caption(episode, home.state([0]), info)
    assert caption.title == "2/8  pick(obj_0_003_cracker_box, robot_0)"
    assert caption.results == [("robot_at(obj_0, robot_0): 1.20 m short", False)]
    assert "step 90, 3.0 s" in caption.status and "holds nothing" in caption.status
    searching = dataclasses.replace(episode, category="tv_stand")
    assert "searches: tv stand" in film.caption(searching, home.state([0]), info).status


def test_every_goal_and_the_current_object_until_held_have_a_marker() -> None:
    home, episode = fake.KinematicHome(), fake.make_episode(num_objects=3, num_targets=2)
    home.reset([0], [episode])
    world = home.state([0])
    spheres = film.markers(episode, world, current=1)
    assert [s.pos for s in spheres[:2]] == [t.goal for t in episode.targets]
    assert spheres[0].rgb != spheres[1].rgb and spheres[0].radius < spheres[1].radius
    assert [s.pos[:2] for s in spheres[2:]] == [(1.0, 2.0)]
    world.held[0] = 1
    assert len(film.markers(episode, world, current=1)) == 2
    assert len(film.markers(episode, world, current=-1)) == 2


def test_a_skill_without_a_scripted_version_is_refused_only_when_used() -> None:
    with registry.registered(unscripted(actions=())):
        acting = agents.Policies(AgentPreset(), {})
        executor = Executor(fake.PicturedHome(), acting, reset_arm=fake.Fold())
        assert type(executor.policy("pick")).__name__ == "ScriptedPick"
        with pytest.raises(UserError, match="loiter: there is no scripted version"):
            executor.policy("loiter")


def test_an_evaluation_of_all_skills_omits_those_without_a_policy(tmp_path: Path) -> None:
    ran, console = [], Console(record=True, width=300)

    def run(settings: SkillSettings, _: Console) -> dict[str, Any]:
        ran.append(settings.skill)
        raise ZeroDivisionError

    settings = config.load(SkillsSettings, config.parse([f"out={tmp_path}"]))
    with registry.registered(unscripted(actions=("nav",))), pytest.raises(ZeroDivisionError):
        evaluate_skills(settings, console, run)
    assert ran == ["navigate"]
    output = console.export_text()
    assert "left out: skills.loiter: there is no scripted version" in output
    assert "train a policy with `tpsrl train loiter`" in output


def unscripted(actions: tuple[str, ...]) -> SkillSpec:
    """Returns a skill without a scripted version."""
    return dataclasses.replace(
        registry.get("navigate"), name="loiter", scripted=None, actions=actions, seed=None
    )
