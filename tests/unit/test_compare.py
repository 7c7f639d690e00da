"""`tpsrl report`: rebuilt reports, and agents compared on the same episodes."""

import functools
import json
import re
import xml.etree.ElementTree
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from full_report import full_report, write_files
from msgspec import UNSET, structs
from rich.console import Console
from test_report import HEADER, episode, summarise
from test_several import scenario_report, skill_report

from eval.analysing import comparison, paired
from eval.analysing.bounds import decode, encode
from eval.analysing.comparison import Evaluated
from eval.analysing.results import EpisodeResult
from eval.analysing.schema import Comparison, Report
from eval.reporting import pages
from eval.running import reports, several
from eval.settings import AllSettings, EvalSettings
from tpsrl import cli, config
from tpsrl.errors import UserError

FIRST = [3, 3, 1, 0, 3, 1]  # stages completed, of three, in each of six episodes
SECOND = [3, 1, 3, 3, 3, 3]
QUIET = Console(quiet=True)


def evaluation(done: list[int], **header: Any) -> tuple[Report, list[EpisodeResult]]:
    results = [episode(index, count) for index, count in enumerate(done)]
    return summarise({**HEADER, "dataset": f"d{len(done)}", **header}, results), results


def write(folder: Path, done: list[int], matrix: Any = UNSET, **header: Any) -> Path:
    """Writes the files of an evaluation as `tpsrl eval` does, and returns the folder."""
    report, results = evaluation(done, **header)
    report = structs.replace(report, handoff_matrix=matrix)
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(json.dumps(encode(report), indent=2) + "\n")
    lines = [json.dumps(result.to_json()) + "\n" for result in results]
    (folder / "episodes.jsonl").write_text("".join(lines))
    (folder / "report.html").write_text(pages.scenario(report, results))
    return folder


def compared(*evaluations: tuple[Report, list[EpisodeResult]]) -> Comparison:
    return comparison.compare(
        [
            Evaluated(f"out/{name}", report, results)
            for name, (report, results) in zip("abcd", evaluations, strict=False)
        ]
    )


def test_a_rebuilt_report_equals_the_original(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", FIRST)
    before = (folder / "report.html").read_bytes()
    (folder / "report.html").unlink()
    assert cli.main(["report", str(folder)]) == 0
    assert (folder / "report.html").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == [
        "episodes.jsonl", "report.html", "report.json",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_report_with_every_key_can_be_rebuilt(tmp_path: Path) -> None:
    write_files(tmp_path)
    reports.rebuild(str(tmp_path), QUIET)
    assert "Gain of repairs" in (tmp_path / "report.html").read_text()


def test_an_index_of_several_evaluations_is_rebuilt_with_all_linked_pages(tmp_path: Path) -> None:
    def run(settings: Any, console: Console) -> Report:
        folder = write(Path(settings.out), FIRST, scenario=settings.scenario.name)
        found = reports.read_report(folder)
        assert isinstance(found, Report)
        return found

    several.evaluate_scenarios(
        config.load(AllSettings, config.parse([f"out={tmp_path}"])), QUIET, run
    )
    pages = sorted(tmp_path.rglob("report.html"))
    before = {path: path.read_bytes() for path in pages}
    for path in pages:
        path.unlink()
    reports.rebuild(str(tmp_path), QUIET)
    assert len(pages) == 4 and {path: path.read_bytes() for path in pages} == before


@functools.cache
def plain_report() -> Any:
    return scenario_report(config.load(EvalSettings, {"scenario": "tidy_house"}), QUIET)


def index(*folders: Any) -> dict[str, Any]:
    """Returns the report of several evaluations in the given folders."""
    report = plain_report()
    rows = encode(several.index.scenario_rows(dict.fromkeys(folders, report)))
    ran: dict[str, Any] = encode(report)
    return ran | {"runs": rows}


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ({"success": {}}, "report.json: success: mean: is missing"),
        (HEADER | {"success": 1}, "report.json: "),
        (index(".."), "runs: '..' is not a subfolder"),
        (index("/etc"), "runs: '/etc' is not a subfolder"),
        (index(""), "runs: '' is not a subfolder"),
        (index("itself"), "itself has several evaluations"),
        (index("b") | {"runs": 3}, "report.json: runs: must be a list, got 3"),
        (index("b") | {"runs": [{}]}, "runs[0]: name: is missing"),
        (index("b") | {"runs": index("b")["runs"] * 2}, "runs: b is repeated"),
        (index("b") | {"runs": []}, "runs: must be a list of length >= 1"),
        ({"success": "\x1b[2J"}, "contains control characters"),
        ({"success": "\x9b2J"}, "contains control characters"),
    ],
)
def test_an_untrusted_report_is_refused_in_one_line_and_writes_nothing(
    tmp_path: Path, report: Any, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.json").write_text(json.dumps(report))
    (tmp_path / "episodes.jsonl").write_text("{}\n")
    (tmp_path / "itself").symlink_to(tmp_path)
    assert cli.main(["report", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert message in printed.err and printed.err.count("\n") == 1 and printed.out == ""
    assert not list(tmp_path.glob("*.html"))


def test_a_report_of_deeply_nested_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("[" * 100_000)
    with pytest.raises(UserError, match=r"report\.json: nested too deeply"):
        reports.read_report(tmp_path)


def test_agents_are_compared_by_the_episodes_in_which_only_one_succeeded() -> None:
    report = compared(evaluation(FIRST), evaluation(SECOND))
    assert [agent.success.mean for agent in report.agents] == [3 / 6, 5 / 6]
    (row,) = report.differences
    counts = paired.Pairs(both=2, only_first=1, only_second=3, neither=0)
    assert {key: getattr(row, key) for key in ("both", "only_first", "only_second", "neither")} == {
        "both": 2, "only_first": 1, "only_second": 3, "neither": 0,
    }  # fmt: skip
    assert row.value == pytest.approx(2 / 6)
    assert row.ci_low == paired.paired_difference(counts).ci_low
    assert row.unpaired_ci_high == paired.unpaired_difference(counts).ci_high
    assert row.p_value == 0.625
    assert [found.id for found in report.episodes] == ["e1", "e2", "e3", "e5"]
    assert [o.success for o in report.episodes[0].outcomes] == [True, False]


def test_stages_and_causes_of_each_agent_are_those_of_its_own_report() -> None:
    first, second = evaluation(FIRST), evaluation(SECOND)
    report = compared(first, second)
    for agent, (own, _) in zip(report.agents, (first, second), strict=True):
        assert agent.stages == own.stages
        assert agent.first_causes == own.first_causes


def test_agents_are_compared_on_their_common_episodes() -> None:
    report = compared(evaluation(FIRST), evaluation(SECOND[:4]))
    assert report.num_episodes == 4 and report.dataset is None
    assert [agent.success.mean for agent in report.agents] == [2 / 4, 3 / 4]
    assert [agent.stages[0].reached for agent in report.agents] == [4, 4]
    assert [agent.num_episodes for agent in report.agents] == [6, 4]


def test_every_agent_is_compared_with_the_first() -> None:
    report = compared(evaluation(FIRST), evaluation(SECOND), evaluation(FIRST))
    differences = [(row.name, row.against, row.value) for row in report.differences]
    assert differences == [("b", "a", pytest.approx(2 / 6)), ("c", "a", 0.0)]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (
            evaluation(SECOND, scenario="set_table"),
            "report: out/a evaluates tidy_house, out/b evaluates set_table; all folders must",
        ),
        (
            evaluation(SECOND, dataset="other"),
            r"out/a \(dataset d6\) and out/b \(dataset other\) have different episodes",
        ),
        (
            (evaluation([3])[0], [episode(0, 3, layout="set/two")]),
            "out/a and out/b have different episodes; 'e0' differs between them",
        ),
        (
            (evaluation([3])[0], [episode(99, 3)]),
            "out/a and out/b have no episode in common",
        ),
    ],
)
def test_incomparable_evaluations_are_refused_with_both_names(
    second: tuple[Report, list[EpisodeResult]], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        compared(evaluation(FIRST), second)


def test_a_comparison_has_working_links_to_the_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, done in (("a", FIRST), ("b", SECOND)):
        write(tmp_path / name, done)
    out = tmp_path / "deep" / "compare"
    assert cli.main(["report", "a", "b", "out=deep/compare"]) == 0
    report = json.loads((out / "report.json").read_text())
    html = (out / "report.html").read_text()
    assert [agent["name"] for agent in report["agents"]] == ["a", "b"]
    tree = xml.etree.ElementTree.fromstring(html[html.index("<main>") : html.index("</main>") + 7])
    links = [link.get("href") or "" for link in tree.iter("a")]
    assert links == ["../../a/report.html", "../../b/report.html"]
    assert all((out / link).resolve().is_file() for link in links)
    assert re.findall(r"<h2>([^<]+)</h2>", html) == [
        "Full success", "Differences", "Stages side by side", "First causes side by side",
        "Episodes that differ", "Compared evaluations",
    ]  # fmt: skip
    assert "b succeeds 33.3 points more often than a (95% interval" in html
    (out / "report.html").unlink()
    monkeypatch.chdir(tmp_path / "deep")
    reports.rebuild("compare", QUIET)
    assert (out / "report.html").read_text() == html


def test_a_comparison_has_the_handoff_taxes_of_agents_that_measured_them(tmp_path: Path) -> None:
    matrix = decode(full_report(), Report, "report").handoff_matrix
    first = write(tmp_path / "a", FIRST, matrix)
    second = write(tmp_path / "b", SECOND)
    reports.compare([str(first), str(second)], str(tmp_path / "out"), QUIET)
    html = (tmp_path / "out" / "report.html").read_text()
    row = next(row for row in html.split("<tr>") if row.startswith("<td>navigate -&gt; pick<"))
    assert "<strong>+8.0</strong> (+3.0 to +13.0) ▲ significant" in row and "not measured" in row


def test_different_protocols_versions_and_numbers_of_episodes_give_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = {"protocol": "m3", "protocol_changes": {"limits.total": 1}, "version": "1"}
    newer, older = ({"versions": {"numpy": number, "torch": "2"}} for number in ("2.1", "2.0"))
    folders = [
        write(tmp_path / "a", FIRST, **newer),
        write(tmp_path / "b", SECOND[:4], **changed, **older),
    ]
    assert cli.main(["report", *map(str, folders), f"out={tmp_path}/out"]) == 0
    printed = capsys.readouterr().out
    html = (tmp_path / "out" / "report.html").read_text()
    for text in (
        "The protocols of the agents differ: a habitat, b m3 with limits.total=1.",
        "The agents were run with different versions of tpsrl: a 0, b 1.",
        "The agents were run with different versions of numpy: a 2.1, b 2.0.",
        "The agents ran different numbers of episodes (a 6, b 4); the 4 common ones are compared.",
    ):
        assert text in printed and text in html


def test_short_names_are_the_shortest_distinct_ends_of_the_paths() -> None:
    assert comparison.short_names(["out/a", "./out/b/"]) == ["a", "b"]
    assert comparison.short_names(["x/th", "y/th", "y/pg"]) == ["x/th", "y/th", "y/pg"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "report: name the folder of an evaluation, or several"),
        (["nowhere"], "nowhere/report.json: cannot be read (No such file or directory); name the"),
        (["a", "out=b"], "out: a single report is rewritten in its own folder"),
        (["a", "a/"], "report: a is repeated"),
        (["a", "b", "out=b"], "out: b is one of the evaluations; choose another"),
        (["a", "skill"], "report: skill/episodes.jsonl: cannot be read"),
        (["torn"], "report: torn/report.json: "),
        (["other"], "report: other/report.json: it is not the report of an evaluation"),
        (["cut"], "report: cut/episodes.jsonl, line 6: "),
        (["a", "b", "outt=c"], "unknown key 'outt'; did you mean 'out'?"),
        (["a", "b", "--out=c"], "report: unknown flag '--out=c'"),
    ],
)
def test_bad_folders_are_refused_in_one_line_and_nothing_is_written(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "cut"):
        write(tmp_path / name, FIRST)
    lines = (tmp_path / "cut" / "episodes.jsonl").read_text()
    (tmp_path / "cut" / "episodes.jsonl").write_text(lines[:-20])
    skill = json.dumps(encode(skill_report(SimpleNamespace(skill="pick"), QUIET)))
    for name, text in (("torn", "{"), ("other", '{"x": 1}'), ("skill", skill)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_text(text)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()}
    assert cli.main(["report", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert printed.err.startswith("tpsrl: error: ") and message in printed.err
    assert {p: p.read_bytes() for p in tmp_path.rglob("*.*") if p.is_file()} == before
    assert not (tmp_path / "out").exists()


def _change(value: Any, key: str, to: Any) -> None:
    """Sets the entry at a dotted key, in which numbers are indices of lists."""
    *parts, last = [int(part) if part.isdecimal() else part for part in key.split(".")]
    for part in parts:
        value = value[part]
    value[last] = to


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "to", "message"),
    [
        ("stage_goals.0.reached", "<script>", "stage_goals[0].reached: must be an integer, got '"),
        ("num_episodes", True, "num_episodes: must be an integer, got True"),
        ("blame.0.count", 1.5, "blame[0].count: must be an integer, got 1.5"),
        ("repairs.0.gain", 3e6, "repairs[0].gain: must be a number <= 1.000001"),
        ("propagation.product_isolated", 1e9, "propagation.product_isolated: "),
        ("handoffs.0.n", "1", "handoffs[0].n: must be an integer, got '"),
        ("handoff_matrix.0.errors.0.bins.0.n", [], "handoff_matrix[0].errors[0].bins[0].n: "),
        ("reel.0.clips.0.video", "//evil.example/x.mp4", "reel[0].clips[0].video: "),
        ("reel.0.clips.0.poster", "../x.png", "poster: must be the path of a file in the folder"),
        ("reel.0.cause", ": " * 100_000, "reel[0].cause: must be a string of length <= 100000"),
        ("findings", ["x"] * 20_000, "findings: must be a list of length <= 10000"),
        ("replan", [[]], "replan: must be true or false, got [[]]"),
    ],
)
def test_a_report_with_an_invalid_value_is_refused(
    tmp_path: Path, key: str, to: Any, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(tmp_path)
    report = full_report()
    _change(report, key, to)
    (tmp_path / "report.json").write_text(json.dumps(report))
    assert cli.main(["report", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert f"report: {tmp_path}/report.json: " in printed.err and printed.err.count("\n") == 1
    assert message in printed.err and not (tmp_path / "report.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "to"),
    [
        ("steps", "<script>"),
        ("goals_met", "<img src=x>"),
        ("clutter_moved", "<img src=x>"),
        ("video", "//evil.example/x.mp4"),
        ("video", "http:x.mp4"),
        ("video", "a/../../x.mp4"),
        ("stages.0.reached", 1),
    ],
)
def test_an_episode_record_with_an_invalid_value_is_refused(
    tmp_path: Path, key: str, to: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(tmp_path)
    lines = (tmp_path / "episodes.jsonl").read_text().splitlines()
    record = json.loads(lines[3])
    _change(record, key, to)
    lines[3] = json.dumps(record)
    (tmp_path / "episodes.jsonl").write_text("\n".join(lines))
    assert cli.main(["report", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert f"report: {tmp_path}/episodes.jsonl, line 4: {key.split('.')[0]}" in err


def test_a_report_over_the_size_limit_is_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (tmp_path / "report.json").open("wb") as file:
        file.truncate(2**33)
    assert cli.main(["report", str(tmp_path)]) == 2
    assert "report.json: cannot be read (more than" in capsys.readouterr().err


def test_no_page_is_written_when_one_of_several_reports_is_damaged(tmp_path: Path) -> None:
    def run(settings: Any, console: Console) -> Report:
        folder = write(Path(settings.out), FIRST, scenario=settings.scenario.name)
        found = reports.read_report(folder)
        assert isinstance(found, Report)
        return found

    several.evaluate_scenarios(
        config.load(AllSettings, config.parse([f"out={tmp_path}"])), QUIET, run
    )
    for path in tmp_path.rglob("report.html"):
        path.unlink()
    (tmp_path / "set_table" / "episodes.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match="set_table"):
        reports.rebuild(str(tmp_path), QUIET)
    assert not list(tmp_path.rglob("report.html"))


@pytest.mark.parametrize("name", ["report.html", "report.json"])
def test_a_comparison_is_written_completely_or_not_at_all(tmp_path: Path, name: str) -> None:
    folders = [str(write(tmp_path / "a", FIRST)), str(write(tmp_path / "b", SECOND))]
    (tmp_path / "out" / name).mkdir(parents=True)
    with pytest.raises(UserError, match=f"out: .*{name} is not a regular file"):
        reports.compare(folders, str(tmp_path / "out"), QUIET)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [name]


def test_an_output_that_cannot_be_written_is_refused_before_any_run(tmp_path: Path) -> None:
    def run(settings: Any, console: Console) -> Report:
        raise AssertionError("nothing is to be run")

    (tmp_path / "set_table" / "timing.json").mkdir(parents=True)
    with pytest.raises(UserError, match=r"out: .*set_table/timing\.json is not a regular file"):
        several.evaluate_scenarios(
            config.load(AllSettings, config.parse([f"out={tmp_path}"])), QUIET, run
        )
