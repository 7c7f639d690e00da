"""Bad input to every command; `python -m benchmarks.fuzz cases=10000` tries many more."""

from collections.abc import Iterator
from pathlib import Path

import fuzzing
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

# Of those that are good none may take long here.
QUICK = [
    line for line in fuzzing.LINES if line.words[0] not in ("bank", "bench", "video", "warmup")
]
LIMIT_S = 5.0  # of those; what is refused has more
CASES = 45
WARM = ("planner and skills", "generator and pictures")  # no line opens anything
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


def test_bad_input_is_refused_in_a_line_and_leaves_nothing(
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
    # Neither is all of it refused, nor nothing.
    refused = list(tried.values()).count(2)
    assert 0.5 * len(tried) < refused < len(tried)


@pytest.mark.parametrize("kind", ["pipe", "endless"])
def test_what_is_no_file_is_not_read_for_ever(
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


def test_what_is_not_handled_well_is_noticed(tmp_path: Path) -> None:
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
def test_any_content_can_be_changed(data: bytes, name: str) -> None:
    changed = fuzzing.changed_file(name, data)
    assert isinstance(changed, st.SearchStrategy)
    changed.validate()
