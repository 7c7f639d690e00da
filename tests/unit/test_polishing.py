"""Rounds of `tpsrl polish`, with commands that are recorded instead of run."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tpsrl import cli
from tpsrl.errors import RunError, UserError
from tpsrl.training import polishing
from tpsrl.training.polishing import PolishSettings, SkillGain

STAGES = ["navigate", "pick", "navigate", "place"]
# Success rate from exit states by policy; `Commands` has the success of each chain evaluation.
RATES = {"pretrained": 0.8, "pick": 0.9, "place": 0.7}


class Commands:
    """Records the commands of a round and writes the files that rounds read."""

    def __init__(self, chain: Sequence[float]) -> None:
        self.ran: list[list[str]] = []
        self._chain = iter(chain)

    def __call__(self, words: Sequence[str]) -> None:
        self.ran.append(list(words))
        keys = dict(word.split("=", 1) for word in words[2:])
        out = Path(keys["out"])
        # Banks and checkpoints are only stand-ins, so keys that refer to them are not parsed.
        cli.parse([w for w in words if not w.startswith(("start_states=", "starts=", "init="))])
        if words[0] == "export":
            write(out / f"{words[1]}.safetensors", "weights")
        elif words[0] == "bank":
            following = {"pick": {"succeeded": 3, "failed": 1}, "place": {"succeeded": 2}}
            write(out / "navigate" / "index.json", {"next": following})
            write(out / "pick" / "index.json", {"next": {"navigate": {"succeeded": 9}}})
        elif words[0] == "eval" and words[1] == "tidy_house":
            rows = [
                {"from": "navigate", "to": "pick", "n": 30, "tax": 0.1},
                {"from": "navigate", "to": "place", "n": 20, "tax": 0.05},
                {"from": "pick", "to": "navigate", "n": 50, "tax": -0.01},
                {"from": "place", "to": "navigate", "n": 0, "tax": None},
            ]
            stages = [{"skill": skill} for skill in STAGES]
            report = {"success": {"mean": next(self._chain)}, "stages": stages}
            write(out / "report.json", report | {"handoff_matrix": rows})
        elif words[0] == "eval":
            agent = "pretrained" if keys["agent"] == "pretrained" else words[1]
            write(out / "report.json", {"success": {"mean": RATES[agent]}})


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def settings(out: Path, **changes: Any) -> PolishSettings:
    words = [f"{key}={value}" for key, value in {"out": out, **changes}.items()]
    _, found = cli.parse(["polish", "tidy_house", *words])
    return found


def test_a_round_trains_skills_by_handoff_tax_and_keeps_better_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = Commands([0.4, 0.55])
    monkeypatch.setattr(polishing, "run_command", commands)
    rounds = polishing.polish(settings(tmp_path / "out"))
    first = rounds[0]
    assert [(r.skill, r.tax, r.kept) for r in first.trained] == [
        ("pick", pytest.approx(0.1), True),
        ("place", pytest.approx(0.05), False),
    ]
    assert first.predicted["tidy_house"] == pytest.approx(0.4 * 0.9 / 0.8)
    assert rounds[1].success == {"tidy_house": 0.55} and not rounds[1].trained
    distilled = next(words for words in commands.ran if words[:2] == ["distill", "pick"])
    bank = tmp_path / "out/round1/train/tidy_house/navigate"
    assert f"start_states=own:0.25,rearranged:0.25,bank:{bank}:0.5" in distilled
    last = next(words for words in reversed(commands.ran) if words[:2] == ["eval", "tidy_house"])
    policy = tmp_path / "out/round1/policies/pick.safetensors"
    assert f"skills.pick={policy}" in last
    assert not any(word.startswith("skills.place=") for word in last)
    record = json.loads((tmp_path / "out/polish.json").read_text())
    assert record["policies"]["pick"] == str(policy) and record["policies"]["place"] == "pretrained"
    text = polishing.table(rounds)
    assert "| 1 | tidy_house | 40.0% | 45.0% | 55.0% |" in text
    assert "| 1 | place | 5.0 points | 80.0%, 70.0% | no |" in text


def test_a_second_round_starts_from_the_policies_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = Commands([0.4, 0.5, 0.6])
    monkeypatch.setattr(polishing, "run_command", commands)
    polishing.polish(settings(tmp_path / "out", train="pick", rounds=2))
    policy = tmp_path / "out/round1/policies/pick.safetensors"
    distilled = [words for words in commands.ran if words[0] == "distill"]
    assert [words[1] for words in distilled] == ["pick", "pick"]
    assert f"init={policy}" in distilled[1] and f"init={policy}" not in distilled[0]
    seeds = {
        word for words in commands.ran if words[0] == "bank" for word in words if "seed" in word
    }
    assert seeds == {"seed=5000", "seed=5001", "seed=5002"}


def test_a_restarted_polishing_repeats_no_finished_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = settings(tmp_path / "out", train="place")
    stopped = Commands([0.4])

    def stops(words: Sequence[str]) -> None:
        if words[0] == "distill":
            raise RunError("polish: stopped")
        stopped(words)

    monkeypatch.setattr(polishing, "run_command", stops)
    with pytest.raises(RunError):
        polishing.polish(given)
    commands = Commands([0.4])
    monkeypatch.setattr(polishing, "run_command", commands)
    polishing.polish(given)
    assert [words[0] for words in commands.ran] == ["distill", "export", "eval", "eval", "eval"]
    with pytest.raises(UserError, match=r"train: the rounds in .* used place, not pick"):
        polishing.polish(settings(tmp_path / "out", train="pick"))


def test_a_command_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunError, match="`tpsrl eval nowhere` ended with code 2"):
        polishing.run_command(["eval", "nowhere"])


def test_exit_states_are_drawn_in_proportion_to_their_number(tmp_path: Path) -> None:
    for scenario, count in (("set_table", 1), ("tidy_house", 3)):
        index = {"next": {"pick": {"succeeded": count, "failed": 0}}}
        write(tmp_path / scenario / "navigate" / "index.json", index)
    counts = polishing.begins(tmp_path, "pick")
    table, tidy = (str(tmp_path / name / "navigate") for name in ("set_table", "tidy_house"))
    assert counts == {table: 1, tidy: 3}
    found = polishing.start_states(counts, 0.4)
    assert found == f"own:0.3,rearranged:0.3,bank:{table}:0.1,bank:{tidy}:0.3"
    assert polishing.start_states(counts, 1.0) == f"bank:{table}:0.25,bank:{tidy}:0.75"
    assert polishing.start_states(polishing.begins(tmp_path, "place"), 0.4) is None


def test_success_is_predicted_from_the_stages_of_kept_skills() -> None:
    report = {"success": {"mean": 0.5}, "stages": [{"skill": skill} for skill in STAGES]}
    better = SkillGain("navigate", None, before=0.8, after=0.9)
    worse = SkillGain("pick", None, before=0.8, after=0.7)
    assert polishing.predicted(report, [better, worse]) == pytest.approx(0.5 * (0.9 / 0.8) ** 2)
    certain = SkillGain("pick", None, before=0.1, after=1.0)
    assert polishing.predicted(report, [certain]) == 1.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "polish: name a scenario, such as tidy_house"),
        (["tidyhouse"], "did you mean 'tidy_house'?"),
        (["tidy_house", "train=pik"], "train: unknown value 'pik'; did you mean 'pick'?"),
        (["tidy_house", "train=explore"], "teacher: no teacher of explore is shipped"),
        (["tidy_house", "out=a,b"], "out: ',' is reserved in start states"),
    ],
)
def test_invalid_settings_are_refused_before_any_command_runs(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["polish", *words]) == 2
    assert message in capsys.readouterr().err
