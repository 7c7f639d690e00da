import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_policies import policy, save, trained

from eval import targets
from eval.running import filming
from eval.settings import EvalSettings, SkillSettings
from skills.policies import learned, shipped
from tpsrl import cli, config
from tpsrl.errors import UserError
from tpsrl.rl.run import checkpoint
from tpsrl.runtime import locks

LATEST = f"{checkpoint.FOLDER}/{checkpoint.LATEST}"
BEST = f"{checkpoint.FOLDER}/{checkpoint.BEST}"


def running(folder: Path, latest: int = 300, best: int = 200) -> Path:
    """Writes a training folder with checkpoints of different networks, by steps trained."""
    save(folder / BEST, *policy("pick", seed=2), best)
    made, deploy = policy("pick", seed=3)
    tensors, note = checkpoint.policy_part(made)
    tensors["ppo.moments"] = torch.zeros(10_000)  # needed only to resume the training
    note |= {"deploy": deploy, "steps": latest, "rollout": {"step": 1}}
    checkpoint.save(folder / LATEST, tensors, note)
    return folder


def filmed(folder: Path, *overrides: str) -> SkillSettings:
    words = ["skill=pick", f"out={folder}/out", *overrides]
    found: SkillSettings = filming.with_newest(config.load(SkillSettings, config.parse(words)))
    return found


@pytest.mark.parametrize(("latest", "best", "newest"), [(300, 200, LATEST), (300, 310, BEST)])
def test_the_newest_checkpoint_of_a_training_is_filmed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], latest: int, best: int, newest: str
) -> None:
    folder = running(tmp_path / "training", latest, best)
    given = filmed(tmp_path, f"agent={folder}")
    copy = Path(given.skills.pick)
    assert copy == tmp_path / "out/policies/pick.safetensors"
    digest = learned.load("pick", folder / newest).digest
    assert learned.load("pick", copy).digest == digest
    assert learned.load("pick", copy).steps == max(latest, best)
    assert f"pick: {folder / newest}, {max(latest, best)} steps" in capsys.readouterr().out
    assert not any(name.startswith("ppo") for name in checkpoint.load(copy).tensors)
    # The training continues; the copy that is filmed stays unchanged.
    running(folder, 500, 400)
    (folder / newest).unlink()
    assert learned.load("pick", copy).digest == digest


def test_a_copy_in_use_is_kept_and_a_second_run_is_refused(tmp_path: Path) -> None:
    folder = running(tmp_path / "training")
    copy = Path(filmed(tmp_path, f"agent={folder}").skills.pick)
    before = copy.read_bytes()
    running(folder, 500, 400)
    with locks.hold(tmp_path / "out"), pytest.raises(UserError, match=r"out: .* is in use by"):
        filmed(tmp_path, f"agent={folder}")
    assert copy.read_bytes() == before


def test_a_checkpoint_given_by_path_is_used_without_a_copy(tmp_path: Path) -> None:
    folder = running(tmp_path / "training")
    for named in (folder / BEST, folder / LATEST):
        given = filmed(tmp_path, f"agent={named}")
        assert (given.agent, given.skills.given()) == (str(named), {})
    assert not (tmp_path / "out").exists()
    assert learned.find("pick", folder) == folder / BEST  # used by an evaluation


def test_in_a_scenario_a_training_folder_stands_for_its_newest_checkpoint(tmp_path: Path) -> None:
    folder = running(tmp_path / "training")
    place = trained(tmp_path / "other", "place") / BEST
    words = ["scenario=tidy_house", f"skills.pick={folder}", f"skills.place={place}"]
    given = filming.with_newest(
        config.load(EvalSettings, config.parse([*words, f"out={tmp_path}/out"]))
    )
    copy = str(tmp_path / "out/policies/pick.safetensors")
    assert given.skills.given() == {"pick": copy, "place": str(place)}


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["", "scripted", "zero", "pretrained"])
def test_an_agent_that_is_not_a_training_folder_stays_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: str
) -> None:
    monkeypatch.chdir(running(tmp_path / "training"))  # an empty agent must not mean this folder
    given = filmed(tmp_path, f"agent={agent}")
    assert (given.agent, given.skills.given()) == (agent, {})
    exported = tmp_path / "shipped"
    shipped.write(shipped.make("pick", "."), exported)
    assert filmed(tmp_path, f"agent={exported}").skills.given() == {}


def test_a_training_of_another_skill_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = running(tmp_path / "training")
    assert cli.main(["video", "place", f"agent={folder}", f"out={tmp_path}/out"]) == 2
    assert "is a policy for pick; train one with `tpsrl train place`" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_command_films_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(targets, "_skill", seen.append)
    folder = running(tmp_path / "training")
    assert cli.main(["video", "pick", f"agent={folder}", f"out={tmp_path}/out"]) == 0
    assert seen[0].skills.pick == f"{tmp_path}/out/policies/pick.safetensors"
    assert (seen[0].videos, seen[0].num_episodes) == (1, 1)


def test_a_checkpoint_replaced_during_reading_is_read_as_one_whole_version(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    shown = [{"policy.a": torch.full((500, 500), value)} for value in (0.0, 1.0)]
    over = threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            number += 1
            checkpoint.save(path, shown[number % 2], {"value": number % 2})

    checkpoint.save(path, shown[0], {"value": 0})
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(50):
            found = checkpoint.load(path, "policy")
            assert bool((found.tensors["policy.a"] == found.get("value", int)).all())
    finally:
        over.set()
        writer.join()


def test_a_damaged_checkpoint_is_a_user_error(tmp_path: Path) -> None:
    folder = running(tmp_path / "training")
    (folder / LATEST).write_bytes(b"")
    with pytest.raises(UserError, match=r"latest.safetensors is truncated or not a checkpoint"):
        filmed(tmp_path, f"agent={folder}")
    assert checkpoint.newest(tmp_path / "nowhere") is None
