import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from test_skill_evaluator import recorded
from tiny_policies import STATE, Acting, policy, save, trained

from eval.running.skill_evaluator import evaluate_skill
from eval.settings import SkillSettings
from skills.policies import learned, pretrained, shipped
from skills.policies.card import Card, markdown
from skills.policies.learned import LearnedPolicy
from skills.starts.recorded import save_starts
from tpsrl import cli, config
from tpsrl.errors import UserError
from tpsrl.rl.run import checkpoint
from tpsrl.training.cloning import CloneSettings
from tpsrl.training.settings import TrainingSettings
from tpsrl.world import action

FIRST_LAYER = "policy.trunk.embed.0.weight"


def note_of(path: Path) -> dict[str, Any]:
    return checkpoint.load(path).note


def export(folder: Path, *overrides: str) -> int:
    return cli.main(["export", "pick", f"out={folder}/shipped", *overrides])


def evaluated(folder: Path, agent: Path | str, *overrides: str) -> Path:
    """Evaluates Pick from recorded start states and returns the folder."""
    starts, out = folder / "starts.npz", folder / "evaluation"
    save_starts(starts, [recorded(i) for i in range(2)])
    words = ["skill=pick", f"agent={agent}", f"starts={starts}", f"out={out}", "processes=1"]
    given = [*words, "protocol.alone.pick.steps=3", *overrides]
    evaluate_skill(config.load(SkillSettings, config.parse(given)), Console(quiet=True), Acting)
    return out


def refused(capsys: pytest.CaptureFixture[str], code: int) -> str:
    """Asserts that a command was refused and returns its line of error."""
    printed = capsys.readouterr().err
    assert code == 2 and printed.count("\n") == 1
    return printed


def test_a_training_is_exported_as_a_small_file_that_acts(tmp_path: Path) -> None:
    source = trained(tmp_path / "training", "pick", "full")
    assert export(tmp_path, f"agent={source}", "machine=two cores") == 0
    path = tmp_path / "shipped" / "pick.safetensors"
    whole, half = (
        sum(tensor.nbytes for tensor in checkpoint.load(file).tensors.values())
        for file in (source / "checkpoints/best.safetensors", path)
    )
    assert 2 * half == whole
    card = shipped.check(path, "pick")
    assert card.to_json() == shipped.Card.from_json(note_of(path)["card"]).to_json()
    assert path.with_suffix(".md").read_text() == markdown(card)
    assert (card.steps, card.machine, card.licence) == (1_500_000, "two cores", "MIT")
    assert card.privileged == ("reach", "goal", "gap") and card.success is None
    assert "Not measured." in markdown(card)
    for agent in (path, path.parent, source):
        assert learned.load("pick", agent).digest == learned.load("pick", source).digest
    assert LearnedPolicy("pick", path).depth_size is None


def test_the_card_describes_the_training(tmp_path: Path) -> None:
    source = trained(tmp_path / "training", "pick")
    words = ["skill=pick", f"out={source}", "preset=cpu_state", "num_episodes=5", "seed=3"]
    (source / "config.yaml").write_text(
        config.to_yaml(
            config.load(TrainingSettings, config.parse([*words, "preset.steps=2000000"]))
        )
    )
    rows = [{"update": n, "steps": n * 500_000, "seconds": n * 1800.0} for n in (1, 2, 3, 4)]
    (source / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert export(tmp_path, f"agent={source}") == 0
    card = shipped.check(tmp_path / "shipped/pick.safetensors", "pick")
    assert card.hours == 1.5 and card.apartments is not None
    assert card.apartments.startswith("5 apartments of split train (families sc0")
    assert "elsewhere" not in card.apartments
    command = "tpsrl train pick preset=cpu_state preset.steps=2000000 num_episodes=5 seed=3"
    assert card.commands == (command,)
    words.append("start_states=own:0.5,rearranged:0.5")
    (source / "config.yaml").write_text(
        config.to_yaml(config.load(TrainingSettings, config.parse(words)))
    )
    assert export(tmp_path, f"agent={source}") == 0
    card = shipped.check(tmp_path / "shipped/pick.safetensors", "pick")
    rearranged = "and 5 of these with fridge or furniture moved"
    assert card.apartments and card.apartments.endswith(rearranged)


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, "2 episodes of the scripted expert, 120 frames"),
        ({"frames": "x"}, "in 1 folders that no longer exist"),
        ({"episodes": -1}, "in 1 folders that no longer exist"),
        ({"made": [1]}, "in 1 folders that no longer exist"),
        ({"made": {"start_states": "own:x:y"}}, "2 episodes of the scripted expert, 120 frames"),
        ({"made": {"start_states": 5}}, "2 episodes of the scripted expert, 120 frames"),
    ],
)
def test_damaged_records_beside_a_policy_are_left_out_of_its_card(
    tmp_path: Path, changes: dict[str, Any], shown: str
) -> None:
    source, demos = trained(tmp_path / "clone", "pick"), tmp_path / "demos"
    cloned = config.load(CloneSettings, config.parse(["skill=pick", f"demos={demos}"]))
    (source / "config.yaml").write_text(config.to_yaml(cloned))
    (source / "metrics.jsonl").write_text('junk\n{"update": 1, "steps": 9}\n')
    note = {"skill": "pick", "sensors": [["arm", 7]], "depth": None, "episodes": 2, "frames": 120}
    demos.mkdir()
    (demos / "demos.json").write_text(
        json.dumps({"format": 1, **note, "ended": {}, "made": {}, **changes})
    )
    assert export(tmp_path, f"agent={source}") == 0
    card = shipped.check(tmp_path / "shipped/pick.safetensors", "pick")
    assert card.demonstrations is not None and card.demonstrations.endswith(shown)
    assert card.hours is None and card.apartments and "elsewhere" not in card.apartments


def test_damaged_settings_of_a_training_are_reported_with_their_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = trained(tmp_path / "training", "pick")
    (source / "config.yaml").write_text("skill: pick\ndepth: deep\n")
    message = refused(capsys, export(tmp_path, f"agent={source}"))
    assert f"agent: {source}/config.yaml: " in message
    assert not list(tmp_path.glob("shipped/*"))


def test_the_success_on_the_card_requires_an_evaluation_of_the_same_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = trained(tmp_path / "training", "pick", "full")
    evaluation = evaluated(tmp_path, source)
    assert export(tmp_path, f"agent={source}", f"evaluation={evaluation}", "failures=slow;odd") == 0
    path = tmp_path / "shipped/pick.safetensors"
    card = shipped.check(path, "pick")
    assert card.success is not None
    report = json.loads((evaluation / "report.json").read_text())
    found = card.success
    shown = {"mean": found.mean, "ci_low": found.ci_low, "ci_high": found.ci_high}
    assert shown == report["success"] and found.num_episodes == 2
    assert found.failures == ("2 of 2 runs: ran out of steps; `holding` did not hold",)
    assert found.protocol == "habitat with alone.pick.steps=3"
    assert found.command.startswith("tpsrl eval pick agent=pretrained protocol.alone.pick.steps=3")
    page = path.with_suffix(".md").read_text()
    assert (
        "**0.0%** (0 of 2; 95% Wilson interval 0.0 to 65.8)" in page and "- slow\n- odd\n" in page
    )
    # `agent=pretrained` is the student, so a teacher's command names its file.
    assert export(tmp_path, f"agent={source}", f"evaluation={evaluation}", "as_teacher=true") == 0
    teacher = path.with_name("pick.teacher.safetensors")
    success = shipped.check(teacher, "pick").success
    assert success is not None and success.command.startswith(f"tpsrl eval pick agent={teacher} ")
    # An exported policy keeps its facts and counts as the same policy.
    assert export(tmp_path, f"agent={path}", "machine=m") == 0
    again = shipped.check(path, "pick")
    assert (again.success, again.failures, again.machine) == (found, ("slow", "odd"), "m")
    capsys.readouterr()
    other = trained(tmp_path / "other", "pick", "full", seed=2)
    message = refused(capsys, export(tmp_path, f"agent={other}", f"evaluation={evaluation}"))
    assert f"evaluation: {evaluation} evaluates another policy" in message
    # The evaluation does not cover a policy that takes mean actions.
    message = refused(
        capsys,
        export(
            tmp_path, f"agent={path}", f"evaluation={evaluation}", "sample=false", "replace=true"
        ),
    )
    assert "evaluates another policy" in message
    assert export(tmp_path, f"agent={path}", "sample=false", "replace=true") == 0
    assert shipped.check(path, "pick").success is None


def test_the_card_contains_the_success_of_the_blinded_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = trained(tmp_path / "training", "pick", "full")
    evaluation = evaluated(tmp_path, source)
    message = refused(capsys, export(tmp_path, f"agent={source}", f"blind={evaluation}"))
    assert "evaluates a policy that is not blinded" in message
    path = evaluation / "report.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"blind": ["depth", "laser"]}))
    message = refused(capsys, export(tmp_path, f"agent={source}", f"evaluation={evaluation}"))
    assert "evaluates a blinded policy; pass it as blind=" in message
    assert export(tmp_path, f"agent={source}", f"blind={evaluation}") == 0
    shown = tmp_path / "shipped/pick.safetensors"
    (found,) = shipped.check(shown, "pick").blind
    assert found.sensors == ("depth", "laser") and found.num_episodes == 2 and found.mean == 0.0
    assert "- depth and laser: 0.0% (0 of 2)" in shown.with_suffix(".md").read_text()
    # The evaluation does not cover a policy that takes mean actions.
    assert export(tmp_path, f"agent={shown}", "sample=false", "replace=true") == 0
    assert shipped.check(shown, "pick").blind == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"skill": "place"}, "is not an evaluation of pick alone"),
        ({"split": "train"}, "uses split train, must use split val"),
        (
            {"starts": None, "seed": 1000},
            "uses seed 1000, on which checkpoints were selected",
        ),
        ({"learned": {}}, "evaluates another policy"),
    ],
)
def test_evaluations_on_unsuitable_episodes_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], message: str
) -> None:
    source = trained(tmp_path / "training", "pick", "full")
    evaluation = evaluated(tmp_path, source)
    path = evaluation / "report.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    code = export(tmp_path, f"agent={source}", f"evaluation={evaluation}")
    assert message in refused(capsys, code)
    assert not (tmp_path / "shipped").exists()


def test_an_evaluation_on_the_validation_seed_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = trained(tmp_path / "training", "pick", "full")
    own = config.load(TrainingSettings, config.parse(["skill=pick", "validation_seed=0"]))
    (source / "config.yaml").write_text(config.to_yaml(own))
    evaluation = evaluated(tmp_path, source)
    path = evaluation / "report.json"
    report = json.loads(path.read_text()) | {"starts": None, "seed": 0}
    path.write_text(json.dumps(report))
    words = f"agent={source}", f"evaluation={evaluation}"
    message = refused(capsys, export(tmp_path, *words))
    assert "uses seed 0, on which" in message and "such as seed=1\n" in message
    path.write_text(json.dumps(report | {"seed": 1}))
    assert export(tmp_path, *words) == 0


def test_a_policy_too_large_or_too_different_in_half_precision_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = trained(tmp_path / "training", "pick")
    message = refused(capsys, export(tmp_path, f"agent={source}", "tolerance=1e-9"))
    assert "tolerance: in half precision a mean action of" in message
    monkeypatch.setattr(shipped, "MOST_BYTES", 1000)
    message = refused(capsys, export(tmp_path, f"agent={source}"))
    assert "pick.safetensors: 0.0 MB, more than 0 MB" in message
    assert not list(tmp_path.glob("shipped/*"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pikc"], "skill: unknown value 'pikc'; did you mean 'pick'?"),
        (["pick"], "agent: name the folder of a training"),
        (["pick", "agent=/proc/nowhere"], "agent: there is no /proc/nowhere"),
        (["place", "agent=pretrained"], "agent: no policy for place is shipped"),
        (
            ["pick", "agent=x", "evaluation=/proc/nowhere", "tolerance=-1"],
            "tolerance: -1.0 is out of",
        ),
    ],
)
def test_invalid_exports_are_refused_in_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    message: str,
) -> None:
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path)
    code = cli.main(["export", *words, f"out={tmp_path}/out"])
    assert message in refused(capsys, code)
    assert not (tmp_path / "out").exists()


def test_a_policy_exported_with_mean_actions_uses_them_by_default(tmp_path: Path) -> None:
    source = trained(tmp_path / "training", "pick")
    assert learned.load("pick", source).sample
    assert export(tmp_path, f"agent={source}", "sample=false", "replace=true") == 0
    path = tmp_path / "shipped/pick.safetensors"
    assert not learned.load("pick", path).sample and not shipped.check(path, "pick").sample
    start = recorded()
    drawn = {}
    for agent, sample in ((path, None), (source, None), (path, False), (path, True)):
        acting = LearnedPolicy("pick", agent, sample)
        world = _world(start)
        acting.begin(start.episode, start.goal, world)
        drawn[agent, sample] = acting.act(world)
    assert (drawn[path, None] == drawn[path, False]).all()
    assert abs(drawn[path, None] - drawn[path, True]).max() > 0.05
    assert abs(drawn[source, None] - drawn[path, True]).max() < 0.01


def test_weights_of_several_policies_are_averaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [trained(tmp_path / str(seed), "pick", seed=seed) for seed in (1, 2, 3)]
    assert export(tmp_path, f"agent={folders[0]}", f"mean_with={folders[1]},{folders[2]}") == 0
    path = tmp_path / "shipped/pick.safetensors"
    loaded = (checkpoint.load(folder / "checkpoints/best.safetensors") for folder in folders)
    one, *others = (found.tensors for found in loaded)
    found = checkpoint.load(path).tensors
    for name, weights in one.items():
        expected = (weights + others[0][name] + others[1][name]) / 3
        torch.testing.assert_close(found[name].float(), expected, rtol=2e-3, atol=1e-4)
    digests = {learned.load("pick", agent).digest for agent in (*folders, path)}
    assert len(digests) == 4
    assert shipped.check(path, "pick").sensors == learned.load("pick", path).inputs.sensors
    # A policy without some of the sensors has weights of 0 for them.
    more = trained(tmp_path / "more", "pick", "fetch")
    assert export(tmp_path, f"agent={more}", f"mean_with={folders[1]}", "replace=true") == 0
    inputs, fewer = (learned.load("pick", agent).inputs for agent in (path, folders[1]))
    assert inputs == learned.load("pick", more).inputs and inputs.extend(fewer)
    own = checkpoint.load(more / "checkpoints/best.safetensors").tensors[FIRST_LAYER]
    half = checkpoint.load(path).tensors[FIRST_LAYER].float()
    new = np.setdiff1d(np.arange(inputs.size), inputs.places(fewer))
    torch.testing.assert_close(half[:, new], own[:, new] / 2, rtol=2e-3, atol=1e-4)
    shared = own[:, inputs.places(fewer)] + others[0][FIRST_LAYER][:, : fewer.size]
    found_shared = half[:, inputs.places(fewer)]
    torch.testing.assert_close(found_shared, shared / 2, rtol=2e-3, atol=1e-4)
    # Nothing is written if the policies do not fit together.
    larger = trained(tmp_path / "larger", "pick", network=dataclasses.replace(STATE, lstm_width=16))
    full, place = trained(tmp_path / "full", "pick", "full"), trained(tmp_path / "place", "place")
    for other, message in (
        (larger, "has another network than"),
        (full, "has other inputs"),
        (place, "is a policy for place"),
        (tmp_path / "none", "there is no"),
    ):
        words = [f"agent={folders[0]}", f"mean_with={other}", f"out={tmp_path}/out"]
        line = refused(capsys, cli.main(["export", "pick", *words]))
        assert line.startswith("tpsrl: error: mean_with: ") and message in line
        assert not (tmp_path / "out").exists()


def test_stop_shift_lowers_the_stop_action_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = trained(tmp_path / "training", "navigate")
    words = [f"agent={source}", f"out={tmp_path}/out", "stop_shift=0.5"]
    digest = learned.load("navigate", source).digest
    for _ in range(2):  # the cached network stays unchanged
        assert cli.main(["export", "navigate", *words]) == 0
    assert learned.load("navigate", source).digest == digest
    before = checkpoint.load(source / "checkpoints/best.safetensors", "policy")
    after = checkpoint.load(tmp_path / "out/navigate.safetensors", "policy")
    bias = "policy.action_head.mean.bias"
    change = after.tensors[bias].float() - before.tensors[bias].float()
    assert change[action.STOP].item() == pytest.approx(-0.5, abs=1e-3)
    assert change[: action.STOP].abs().max().item() < 1e-3
    assert learned.load("navigate", tmp_path / "out").digest != digest
    pick = trained(tmp_path / "pick", "pick")
    assert export(tmp_path, f"agent={pick}", "stop_shift=0.5") == 2
    assert "stop_shift: pick has no stop action" in capsys.readouterr().err


def test_stuck_noise_is_part_of_the_policy_and_its_card(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = trained(tmp_path / "training", "navigate", "fetch")
    words = ["export", "navigate", f"out={tmp_path}/shipped"]
    assert cli.main([*words, f"agent={source}", "stuck_noise=0.8"]) == 0
    path = tmp_path / "shipped/navigate.safetensors"
    assert learned.load("navigate", path).stuck_noise == 0.8
    assert shipped.check(path, "navigate").stuck_noise == 0.8
    text = "uses mean actions" if not learned.load("navigate", path).sample else "samples actions"
    page = path.with_suffix(".md").read_text()
    assert text in page and "noise of standard deviation 0.8 while the robot is stuck" in page
    assert cli.main([*words[:2], f"agent={path}", f"out={tmp_path}/again"]) == 0
    assert learned.load("navigate", tmp_path / "again").stuck_noise == 0.8
    assert cli.main([*words, f"agent={path}", "stuck_noise=0", "replace=true"]) == 0
    assert learned.load("navigate", path).stuck_noise == 0.0
    pick = trained(tmp_path / "pick", "pick")
    assert export(tmp_path, f"agent={pick}", "stuck_noise=0.8") == 2
    assert "stuck_noise: needs the sensor velocity; must be 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("skill", "rule", "said", "sensor"),
    [
        ("pick", "grip_within=0.12", "closed within 0.12 m of the object's first", "start_from_ee"),
        ("pick", "grip_beyond=0.12", "open beyond 0.12 m of the object's first", "start_from_ee"),
        ("pointnav", "stop_within=0.12", "stop within 0.12 m of the goal", "compass"),
        ("place", "release_speed=0.12", "once the hand is slower than 0.12 m/s", "goal_from_ee"),
        ("place", "release_after=30", "after 30 steps within 0.25 m of the goal", "goal_from_ee"),
        ("place", "release_upright=40", "upright over its goal before the release", "goal_from_ee"),
        ("navigate", "follow_path=80", "follows its path for 80 steps", "explored_way"),
    ],
)
def test_a_rule_is_part_of_the_policy_and_its_card(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    skill: str,
    rule: str,
    said: str,
    sensor: str,
) -> None:
    name, value = rule.split("=")
    choice = {"navigate": "mapping", "place": "gaze"}.get(skill, "habitat")
    source = trained(tmp_path / "training", skill, choice)
    words = ["export", skill, f"out={tmp_path}/shipped"]
    assert cli.main([*words, f"agent={source}", rule]) == 0
    path = tmp_path / f"shipped/{skill}.safetensors"
    assert getattr(learned.load(skill, path).deployment, name) == float(value)
    assert getattr(shipped.check(path, skill), name) == float(value)
    assert said in path.with_suffix(".md").read_text()
    assert cli.main([*words, f"agent={path}", f"{name}=0", "replace=true"]) == 0
    assert getattr(learned.load(skill, path).deployment, name) == 0
    navigate = trained(tmp_path / "navigate", "navigate", "fetch")
    assert cli.main(["export", "navigate", f"agent={navigate}", rule]) == 2
    assert f"{name}: needs the sensor {sensor}; must be 0" in capsys.readouterr().err


def test_a_glimpse_is_on_the_card(tmp_path: Path) -> None:
    network = dataclasses.replace(STATE, encoder="nature_cnn", glimpse=32)
    seen = {"choice": "gaze", "depth": (80, 80), "network": network}
    source = trained(tmp_path / "training", "place", **seen)
    assert cli.main(["export", "place", f"agent={source}", f"out={tmp_path}"]) == 0
    page = (tmp_path / "place.md").read_text()
    assert "head depth, 80 x 80, halved, and 32 x 32 of its pixels around the goal |" in page
    assert "ee_gaze, carried |" in page


def _world(start: Any) -> Any:
    from kinematic_home import PicturedHome

    home = PicturedHome()
    home.reset([0], [start.episode])
    return home.state([0])


def test_an_invalid_shipped_policy_is_refused_with_the_reason(tmp_path: Path) -> None:
    made, deploy = policy("pick")
    path = save(tmp_path / "pick.safetensors", made, deploy)
    with pytest.raises(UserError, match="its weights are not in half precision"):
        shipped.check(path, "pick")
    exported = shipped.make("pick", path)
    shipped.write(exported, tmp_path / "out")
    good = tmp_path / "out/pick.safetensors"
    with pytest.raises(UserError, match="good: is a policy for pick, not for place"):
        shipped.check(good, "place", "good")
    with pytest.raises(UserError, match="skill: unknown value 'pikc'"):
        shipped.check(good, "pikc")
    cards: list[tuple[Any, str]] = [
        (None, "card: must be a record"),
        ({**exported.card.to_json(), "odd": 1}, "card: unknown value 'odd'"),
        ({**exported.card.to_json(), "steps": -1}, "card: steps: must be an integer >= 0, got -1"),
        ({**exported.card.to_json(), "sensors": ["arm"]}, "its card describes another policy"),
    ]
    for card, message in cards:
        checkpoint.save(path, exported.tensors, {**exported.note, "card": card})
        with pytest.raises(UserError, match=message):
            shipped.check(path, "pick")
    whole = good.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="pick is truncated or not a checkpoint"):
        shipped.check(path, "pick", "pick")


def test_a_card_is_read_back_from_json() -> None:
    made = Card(
        "pick",
        ("arm",),
        (),
        (64, 64),
        True,
        False,
        "state",
        10,
        0.001,
        5,
        "0",
        hours=2,
        machine="a|b",
    )
    assert Card.from_json(json.loads(json.dumps(made.to_json()))) == made
    page = markdown(made)
    assert "| camera | head depth, 64 x 64 |" in page and "| machine | a\\|b |" in page
    assert "uses mean actions, delayed by one step after the observation" in page
    near = markdown(dataclasses.replace(made, sight=1.5))
    assert "64 x 64; depth and laser are limited to a range of 1.5 m |" in near


def test_weights_are_loaded_in_single_precision(tmp_path: Path) -> None:
    exported = shipped.make("pick", trained(tmp_path, "pick"))
    path = shipped.write(exported, tmp_path / "out")
    network = learned.load("pick", path)
    assert {weights.dtype for weights in network.policy.parameters()} == {torch.float32}
