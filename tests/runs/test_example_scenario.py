"""The commands and code of docs/add_a_scenario.md, executed in their order."""

import contextlib
import io
import json
import re
from pathlib import Path

import pytest
import yaml

from eval.running import filming
from tpsrl import cli, config
from tpsrl.commands import video
from tpsrl.sim import datasets
from tpsrl.world.episode import load_episodes
from tpsrl.world.scenarios import Scenario

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/scenario/clear_table.yaml"
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", (ROOT / "docs/add_a_scenario.md").read_text(), re.S)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(autouse=True)
def elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TPSRL_CACHE", str(folder / "cache"))


@pytest.fixture(scope="module")
def printed(folder: Path) -> dict[str, str]:
    """Output of every command of the page, run in order in a folder that has only the file."""
    outputs = {}
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder):
        patch.setenv("TPSRL_CACHE", str(folder / "cache"))
        (text,) = (text for language, text in BLOCKS if language == "yaml")
        Path("clear_table.yaml").write_text(text)
        lines = [
            line for language, text in BLOCKS if language == "shell" for line in text.splitlines()
        ]
        for line in lines:
            program, *words = line.split()
            assert program == "tpsrl"
            with contextlib.redirect_stdout(io.StringIO()) as out:
                assert cli.main(words) == 0, line
            outputs[line] = out.getvalue()
    return outputs


def test_the_page_shows_the_example() -> None:
    assert [text for language, text in BLOCKS if language == "yaml"] == [EXAMPLE.read_text()]


def test_the_episodes_follow_the_scenario_file(printed: dict[str, str]) -> None:
    (episode,) = load_episodes("out/episodes/clear_table_val_0.jsonl.gz")
    assert episode.id == "clear_table_val_0_00000"
    assert len(episode.objects) == 12 and len(episode.targets) == 2
    for target in episode.targets:
        assert episode.objects[target.object].receptacle == "table_1"
        assert target.receptacle in ("counter_left", "counter_right")


def test_the_scenario_is_planned_without_warnings(printed: dict[str, str]) -> None:
    assert "2 objects to move" in printed["tpsrl plan clear_table.yaml"]
    assert "8. place(" in printed["tpsrl plan clear_table.yaml"]


def test_the_scripted_skills_solve_the_scenario(printed: dict[str, str]) -> None:
    report = json.loads(Path("out/clear_table/report.json").read_text())
    assert (report["scenario"], report["title"]) == ("clear_table", "Clear the Table")
    assert report["success"]["mean"] == 1.0


def test_the_settings_beside_the_report_reproduce_the_scenario(
    printed: dict[str, str],
) -> None:
    written = yaml.safe_load(Path("out/clear_table/config.yaml").read_text())["scenario"]
    Path("written.yaml").write_text(yaml.safe_dump(written))
    again = config.load_preset("scenario", "written.yaml", Scenario)
    assert again == config.load_preset("scenario", str(EXAMPLE), Scenario)


def test_a_film_of_the_scenario_is_saved_in_the_documented_folder(printed: dict[str, str]) -> None:
    command = video.choose("clear_table.yaml")
    settings = config.load(command.settings, command.fixed)
    assert filming.filmed(settings, "clear_table.yaml").out == "out/videos/clear_table"


def test_the_python_code_of_the_page_runs() -> None:
    Path("clear_table.yaml").write_text(EXAMPLE.read_text())
    (code,) = (text for language, text in BLOCKS if language == "python")
    names: dict[str, list] = {}
    exec(code, names)
    assert [e.id for e in names["episodes"]] == [f"clear_table_val_0_0000{i}" for i in (0, 1)]


def test_an_edited_file_gives_new_episodes() -> None:
    example = config.load_preset("scenario", str(EXAMPLE), Scenario)
    first = datasets.load(example, "val", 1, num_objects=12)
    edited = EXAMPLE.read_text().replace("starts: [table_1]", "starts: [sofa]")
    Path("clear_table.yaml").write_text(edited)
    other = config.load_preset("scenario", "clear_table.yaml", Scenario)
    second = datasets.load(other, "val", 1, num_objects=12)
    assert {o.receptacle for o in first[0].objects[:2]} == {"table_1"}
    assert {o.receptacle for o in second[0].objects[:2]} == {"sofa"}
    assert datasets.load(example, "val", 1, num_objects=12) == first
