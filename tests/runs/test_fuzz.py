"""Random bad input to every command; `python -m benchmarks.fuzz cases=10000` tries more cases."""

from collections.abc import Iterator
from pathlib import Path

import fuzzing
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

# Valid inputs of the other commands would take too long here.
QUICK = [
    line for line in fuzzing.LINES if line.words[0] not in ("bank", "bench", "video", "warmup")
]
LIMIT_S = 5.0  # for valid input; refusals have a longer limit
CASES = 24
WARM = ("planner and skills", "generator and pictures")  # no case opens a drawer
LATEST = "training/checkpoints/latest.safetensors"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[fuzzing.Server]:
    server = fuzzing.Server(folder, WARM)
    yield server
    server.close()


@pytest.fixture(scope="module")
def materials(folder: Path, server: fuzzing.Server) -> dict[str, fuzzing.Files]:
    return fuzzing.make_materials(folder / "materials", server)


def test_bad_input_is_refused_in_one_line_and_leaves_no_files(
    server: fuzzing.Server, folder: Path, materials: dict[str, fuzzing.Files]
) -> None:
    tried: dict[fuzzing.Case, int] = {}

    @settings(
        max_examples=CASES,
        derandomize=True,  # the same in every run of the suite
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=tuple(HealthCheck),
    )
    @given(case=fuzzing.cases(materials, QUICK))
    def one(case: fuzzing.Case) -> None:
        if case in tried:
            return
        limit_s = LIMIT_S if case.large else fuzzing.HUNG_S
        found = server.run(case, folder / "here", limit_s)
        tried[case] = found["code"]
        assert fuzzing.judge(case, found, folder / "here") == [], repr(case)

    one()
    # Some cases are refused, but not all.
    refused = list(tried.values()).count(2)
    assert 0.5 * len(tried) < refused < len(tried)


@pytest.mark.parametrize("kind", ["pipe", "endless"])
def test_a_pipe_or_endless_device_instead_of_a_file_is_refused(
    kind: str, server: fuzzing.Server, folder: Path, materials: dict[str, fuzzing.Files]
) -> None:
    for words, read in (
        ("export navigate agent=training/checkpoints/latest.safetensors out=out", LATEST),
        ("plan tidy_house episodes=episodes.jsonl.gz domain=domain.pddl", "domain.pddl"),
        ("clone navigate demos=demos out=out", "demos/demos.json"),
        ("train navigate start_states=starts.npz out=out", "starts.npz"),
        ("train resume=training", "training/config.yaml"),
        ("report report", "report/report.json"),
        ("hub pull repo=./hub out=out", "hub/navigate.safetensors"),
    ):
        files = {name: data for group in materials.values() for name, data in group.items()}
        case = fuzzing.Case(tuple(words.split()), files, instead=((read, kind),))
        found = server.run(case, folder / "here", fuzzing.HUNG_S)
        assert fuzzing.judge(case, found, folder / "here") == [], repr(case)
        assert found["code"] == 2, repr(case)


def test_every_kind_of_wrong_handling_is_detected(tmp_path: Path) -> None:
    case = fuzzing.Case(("eval", "pick"), {})
    fine = {
        "code": 2,
        "how": "ended",
        "err": "tpsrl: error: x: no\n",
        "out": "",
        "left": [],
        "shared": [],
    }
    assert fuzzing.judge(case, fine, tmp_path) == []
    for found, text in (
        ({"err": "Traceback (most recent call last):\nKeyError: 'a'\n", "code": 1}, "KeyError"),
        ({"err": "tpsrl: error: a\nb\n"}, "2 lines"),
        ({"err": f"tpsrl: error: {'a' * 301}\n"}, "characters"),
        ({"err": "tpsrl: error: \x1b[31m\n"}, "control"),
        ({"code": -11, "err": ""}, "exit code -11"),
        ({"code": 0}, "complains"),
        ({"how": "hung", "code": -9}, "hangs"),
        ({"how": "terminated", "code": 143}, "takes more"),
        ({"left": ["1 python"]}, "processes left"),
        ({"shared": ["sem.mp-x"]}, "in shared memory"),
    ):
        (wrong,) = fuzzing.judge(case, fine | found, tmp_path)
        assert text in wrong
    (tmp_path / ".a.1.tmp.npz").touch()
    assert [w.partition(":")[0] for w in fuzzing.judge(case, fine, tmp_path)] == [
        "left behind",
        "half-written",
    ]


@given(
    data=st.binary(max_size=200), name=st.sampled_from(("a.json", "a.jsonl.gz", "a.pddl", "a.npz"))
)
@settings(max_examples=50, deadline=None, database=None)
def test_a_strategy_of_changes_exists_for_any_content(data: bytes, name: str) -> None:
    changed = fuzzing.changed_file(name, data)
    assert isinstance(changed, st.SearchStrategy)
    changed.validate()
