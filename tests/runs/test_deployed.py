"""Checkpoints of unknown origin with invalid deployment notes."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import tiny_policies

from skills.core.inputs import PolicyInputs
from skills.policies import deployed, learned
from tpsrl import cli, config
from tpsrl.errors import UserError
from tpsrl.rl.policy.actor_critic import CRITIC, ActorCritic
from tpsrl.rl.run import checkpoint
from tpsrl.training import cloning, loading


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """Folder of a training of Pick without camera."""
    return tiny_policies.trained(tmp_path / "pick", "pick", "full")


def changed(folder: Path, part: str, **entries: Any) -> Path:
    """Returns the training's checkpoint after a change of entries in a part of its note."""
    path = folder / checkpoint.FOLDER / checkpoint.BEST
    found = checkpoint.load(path)
    found.note[part] = {**found.note[part], **entries}
    checkpoint.save(path, found.tensors, found.note)
    return path


DAMAGE: list[tuple[str, dict[str, Any], str]] = [
    ("deploy", {"skill": "pikc"}, " is a policy of the unknown skill 'pikc'"),
    ("deploy", {"sensors": []}, ": deploy: sensors: must be a list of length >= 1, got "),
    ("deploy", {"sensors": ["arm", "arm"]}, " has a sensor twice, arm"),
    ("deploy", {"sensors": ["arm"]}, " is inconsistent: state is 7, in its network "),
    ("deploy", {"sensors": ["nose"]}, " has an unknown sensor, nose"),
    ("deploy", {"depth": [64, 8000]}, r": deploy: depth\[1\]: must be an integer <= 4096, got"),
    ("deploy", {"depth": [64, 64]}, " is inconsistent: depth is "),
    ("spec", {"observations": {}}, " has no valid 'spec'"),
    ("spec", {"mask": [True] * 3}, " is inconsistent: action is 11, in its network 3"),
    ("spec", {"mask": "yes"}, ": spec: mask: must be a list, got 'yes'"),
    ("policy", {"lstm_width": "x"}, ": policy settings: lstm_width: must be an integer, got 'x'"),
    ("policy", {"lstm_width": 10**7}, r" has another network \(its size\)"),
    ("policy", {"initial_std": 9.0}, ": initial_std: 9.0 is not between"),
    ("policy", {"encoder": "nose"}, ": encoder: unknown value 'nose'"),
]


@pytest.mark.parametrize(("part", "entries", "message"), DAMAGE)
def test_an_inconsistent_policy_is_refused_by_every_setting_that_loads_it(
    good: Path, part: str, entries: dict[str, Any], message: str
) -> None:
    path = changed(good, part, **entries)
    with pytest.raises(UserError, match=f"^skills.pick: {path}{message}"):
        learned.load("pick", path)
    with pytest.raises(UserError, match=f"^init: {path}{message}"):
        loading.training(config.parse(["skill=pick", f"init={path}"]))
    with pytest.raises(UserError, match=f"^init: {path}{message}"):
        cloning._init(str(path), PolicyInputs("pick", ("arm",)))


def test_a_deployment_note_is_read_and_written_unchanged(good: Path) -> None:
    found = checkpoint.load(good / checkpoint.FOLDER / checkpoint.BEST)
    made_for = deployed.read(found, checkpoint.policy_spec(found))
    assert made_for.to_json() == {**found.note["deploy"], "sample": True}
    assert (made_for.inputs, made_for.sample) == (PolicyInputs.of("pick", "full"), True)


def test_cloning_from_an_incompatible_policy_reports_the_difference(good: Path) -> None:
    with pytest.raises(UserError, match=r"^init: .*was made with skill pick"):
        cloning._init(str(good), PolicyInputs("place", ("arm",)))
    with pytest.raises(UserError, match=r"^init: .*was made with sensors \['arm', "):
        cloning._init(str(good), PolicyInputs("pick", ("arm",)))


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("critic=true", "preset.policy.critic: demonstrations do not contain the true state"),
        ("frozen_encoder=true", "preset.policy.frozen_encoder: needs init=CHECKPOINT of a policy"),
    ],
)
def test_a_network_that_cannot_be_cloned_is_refused_before_demonstrations_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str, message: str
) -> None:
    words = ["demos=/proc/nowhere", f"preset.policy.{word}", f"out={tmp_path}/out"]
    assert cli.main(["clone", "pick", *words]) == 2
    assert capsys.readouterr().err.startswith(f"tpsrl: error: {message}")


def test_cloning_from_a_policy_with_a_privileged_critic_is_refused(tmp_path: Path) -> None:
    made, deploy = tiny_policies.policy("pick", "full")
    seen = {**made.spec.observations, CRITIC: (7,)}
    spec = dataclasses.replace(made.spec, observations=seen)
    network = dataclasses.replace(tiny_policies.STATE, critic=True)
    path = tiny_policies.save(tmp_path / "a", ActorCritic(spec, network), deploy)
    with pytest.raises(UserError, match=r"^init: .* has a critic of the true state"):
        cloning._init(str(path), PolicyInputs.of("pick", "full"))
