"""The viewer: recordings, the player, and the page on viser's server."""

import importlib.util
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import viser
from rich.console import Console

from eval.running.evaluator import evaluate
from eval.running.journal import Journal
from eval.running.skill_evaluator import evaluate_skill
from eval.settings import EvalSettings, SkillSettings
from eval.viewing import text, timeline
from eval.viewing.page import Page
from eval.viewing.player import Player
from eval.viewing.recording import EpisodeRecording
from eval.viewing.runs import recordings
from eval.viewing.settings import ScenarioView, SkillView
from tpsrl import cli, config
from tpsrl.commands import view
from tpsrl.errors import UserError

_WAIT_S = 120
_SKILL = ("skill=pick", "num_objects=3", "agent=scripted")
_SCENARIO = ("scenario=prepare_groceries", "protocol.limits.episode_steps=60", "processes=1")


def recorded(found: list[EpisodeRecording]) -> list[EpisodeRecording]:
    for recording in found:
        assert recording.over.wait(_WAIT_S)
    return found


@pytest.fixture(scope="module")
def alone() -> list[EpisodeRecording]:
    return recorded(
        recordings(config.load(SkillView, config.parse([*_SKILL, "episode=1", "compare=zero"])))
    )


@pytest.fixture(scope="module")
def chained() -> EpisodeRecording:
    (found,) = recorded(
        recordings(config.load(ScenarioView, config.parse([*_SCENARIO, "episode=2"])))
    )
    return found


@pytest.fixture(scope="module")
def skill_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of an evaluation of a skill."""
    out = tmp_path_factory.mktemp("skill")
    words = [*_SKILL, "num_episodes=2", "processes=1", f"out={out}"]
    evaluate_skill(config.load(SkillSettings, config.parse(words)))
    return out


@pytest.fixture(scope="module")
def scenario_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of an evaluation of a scenario."""
    out = tmp_path_factory.mktemp("scenario")
    evaluate(config.load(EvalSettings, config.parse([*_SCENARIO, "episode=2", f"out={out}"])))
    return out


@pytest.fixture
def server() -> Iterator[viser.ViserServer]:
    # Port 0 selects any free port.
    made = viser.ViserServer(host="127.0.0.1", port=0, verbose=False)
    yield made
    made.stop()


def test_a_recording_of_a_skill_equals_its_evaluation(
    alone: list[EpisodeRecording], skill_folder: Path
) -> None:
    scripted, zero = alone
    second = json.loads((skill_folder / "episodes.jsonl").read_text().splitlines()[1])
    assert (scripted.episode.id, len(scripted.moments) - 1) == (second["id"], second["steps"])
    rewards = sum(sum(moment.rewards.values()) for moment in scripted.moments)
    assert rewards == pytest.approx(second["reward"], abs=1e-6)
    assert (scripted.outcome, zero.outcome) == ("success", "failure (ran out of steps)")
    assert [moment.step for moment in scripted.moments] == list(range(len(scripted.moments)))
    ends = [mark.text for mark in zero.marks]
    assert ends[0] == "1. pick" and ends[1].startswith("first cause: ") and len(ends) == 3
    last = scripted.moments[-1]
    assert all(condition.holds for condition in last.conditions)
    assert last.rewards["success"] == 10.0 and last.occupation != "holds nothing"
    assert last.depth.shape == (64, 64, 3) and last.depth.dtype == np.uint8
    assert not np.array_equal(last.poses, scripted.moments[0].poses)
    np.testing.assert_array_equal(zero.moments[0].poses, scripted.moments[0].poses)


def test_a_recording_of_a_scenario_equals_its_evaluation(
    chained: EpisodeRecording, scenario_folder: Path
) -> None:
    episodes = (scenario_folder / "episodes.jsonl").read_text()
    assert chained.outcome == "failure (episode ran out of steps)"
    assert chained.episode.id in episodes and '"steps": 60' in episodes
    assert chained.moments[-1].step == 60
    marks = [mark.text for mark in chained.marks]
    assert marks[0].startswith("1. nav(") and any(m.startswith("first cause: ") for m in marks)
    assert chained.plan[0].startswith("nav(") and chained.moments[-1].stage >= 0


def test_the_folder_of_an_evaluation_is_viewed_with_its_settings(
    skill_folder: Path, scenario_folder: Path
) -> None:
    command = view.choose(str(skill_folder))
    assert command.load is not None
    settings = command.load({"episode": "1", "port": "9000"})
    assert (settings.skill, settings.num_objects, settings.agent) == ("pick", 3, "scripted")
    assert (settings.episode, settings.port, settings.num_episodes) == ("1", 9000, None)
    for wrong, message in (("2", "has 2 episodes (0 to 1), got 2"), ("p", "unknown value 'p'")):
        with pytest.raises(UserError, match=re.escape(message)):
            command.load({"episode": wrong})
    again = view.choose(str(scenario_folder))  # an evaluation of episode 2 alone
    assert again.load is not None
    loaded = again.load({})
    assert (loaded.scenario.name, loaded.episode) == ("prepare_groceries", "2")
    assert loaded.protocol.limits.episode_steps == 60
    with pytest.raises(UserError, match="unknown value '3'"):
        again.load({"episode": "3"})


def test_an_unfinished_evaluation_is_viewed_with_its_settings(tmp_path: Path) -> None:
    given = config.load(EvalSettings, config.parse([*_SCENARIO, "num_episodes=4"]))
    with Journal(tmp_path, Console(quiet=True)) as journal:
        journal.resume("digest")
        journal.describe(config.to_yaml(given))
        command = view.choose(str(tmp_path))
        assert command.load is not None
        assert command.load({"episode": "3"}).scenario.name == "prepare_groceries"
        with pytest.raises(UserError, match=re.escape("has 4 episodes (0 to 3), got 4")):
            command.load({"episode": "4"})


def test_the_page_shows_the_current_moment_of_the_player(
    alone: list[EpisodeRecording], server: viser.ViserServer
) -> None:
    page = Page(server, alone)
    scripted, zero = alone
    page.player.play(False)
    page.player.seek(20)
    page.update()
    for home, recording in zip(page.homes, alone, strict=True):
        shown = np.array([[*body.position, *body.wxyz] for body in home._bodies])
        np.testing.assert_allclose(shown, recording.moments[20].poses, atol=1e-6)
    assert page._timeline.value == 20 and page._timeline.max == len(zero.moments) - 1
    assert "step 20, 0.7 s · pick: 20 of " in page._panels[0]["status"].content
    assert page._panels[0]["conditions"].content == text.conditions(scripted.moments[20])
    labels = page._jump.options
    assert "scripted: 1. pick (step 1)" in labels
    page._jump.value = next(label for label in labels if "zero: first cause" in label)
    page._jump_to(SimpleNamespace(client=object()))
    assert page.player.index == zero.marks[1].moment
    page._buttons.value = "back"  # simulates a click
    assert page.player.index == zero.marks[1].moment - 1
    assert page.homes[1].offset[0] > 7.0  # side by side
    page._show_walls(False)
    assert page.homes[0]._walls and not any(wall.visible for wall in page.homes[0]._walls)


def test_the_player_advances_with_time_and_stops_at_the_end(alone: list[EpisodeRecording]) -> None:
    player = Player(alone[:1])
    last = len(alone[0].moments) - 1
    player.advance(1.0)
    assert player.index == min(30, last)
    player.set_speed(2.0)
    player.seek(0)
    player.advance(0.5)
    assert player.index == min(30, last)
    player.advance(1000.0)
    assert player.index == last and not player.playing
    player.play(True)
    assert player.index == 0 and player.playing
    player.step(-1)
    assert player.index == 0 and not player.playing
    player.seek(10**6)
    assert player.index == last


def test_playing_follows_a_recording_that_grows(alone: list[EpisodeRecording]) -> None:
    source = alone[0]
    growing = EpisodeRecording("scripted", source.episode, source.shapes, source.plan)
    growing.moments = source.moments[:10]
    player = Player([growing])
    player.advance(10.0)
    assert player.index == 9 and player.playing
    growing.moments = source.moments[:30]
    player.advance(0.5)
    assert player.index == 24


def test_the_timeline_shows_stages_and_the_first_cause(alone: list[EpisodeRecording]) -> None:
    zero = alone[1]
    last = len(zero.moments) - 1
    assert timeline.segments(zero) == [(1, last + 1, 0)]
    picture = timeline.picture([zero], last, 0)
    red = np.all(picture == timeline._RED, axis=-1)
    where = np.flatnonzero(red.any(axis=0))
    wanted = zero.marks[1].moment / last * (timeline.WIDTH - 1)
    assert len(where) and abs(where.mean() - wanted) < 3


def test_a_long_plan_is_shown_around_its_current_step(chained: EpisodeRecording) -> None:
    long = EpisodeRecording("x", chained.episode, chained.shapes, [f"step_{n}" for n in range(40)])
    moment = SimpleNamespace(stage=20)
    shown = text.plan(long, moment)  # type: ignore[arg-type]
    assert "**21\\. step\\_20**" in shown and "*17 steps before*" in shown and "*16 more*" in shown
    assert text.plan(chained, chained.moments[-1]).count("**") == 2


def test_a_failed_run_is_reported_as_the_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    from eval.viewing import runs

    def broken(*_: object) -> None:
        raise UserError("skill pick: the policy returned no action")

    monkeypatch.setattr(runs, "run_start", broken)
    (found,) = recorded(recordings(config.load(SkillView, config.parse([*_SKILL, "episode=0"]))))
    assert found.outcome == "failed: skill pick: the policy returned no action"


def test_invalid_targets_and_settings_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="view: all has several evaluations; choose one"):
        view.choose("all")
    with pytest.raises(UserError, match=r"out/x is not the folder of an evaluation \(no config"):
        view.choose("out/x")
    with pytest.raises(UserError, match="unknown value 'pikc'; did you mean 'pick'"):
        view.choose("pikc")
    with pytest.raises(UserError, match=r"videos: has no effect on `tpsrl view`; leave it out"):
        cli.parse(["view", "pick", "videos=3"])
    with pytest.raises(UserError, match="unknown value 'scriptd'"):
        recordings(config.load(ScenarioView, config.parse([*_SCENARIO, "compare=scriptd"])))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs viser, .*pip install 'tpsrl\[view\]'"):
        view.run(config.load(SkillView, config.parse([*_SKILL])))
    assert threading.active_count() < 50
