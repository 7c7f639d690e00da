"""Trainings that take only the encoder of another policy, frozen or not."""

import copy
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_policies
import torch
from toy_training import SETTINGS, Silent, rows, trainer
from toy_vec_env import SPEC, ToyVecEnv, ToyVecEnvFactory

from tpsrl import cli, config
from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import EnvSpec, Observation
from tpsrl.rl.policy.actor_critic import VISION, ActorCritic
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.rl.run import checkpoint as checkpoints
from tpsrl.rl.run import halving, warm_start
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.rl.run.trainer import Trainer, TrainTask, load_latest
from tpsrl.rl.run.warm_start import EncoderOnly
from tpsrl.training import loading
from tpsrl.training.settings import TrainingSettings

SIDE = 32
CAMERA = PolicySettings(
    encoder="nature_cnn", encoder_width=4, visual_width=6, state_width=8, lstm_width=8
)
POLICY = dataclasses.replace(CAMERA, lstm_layers=1)  # the trainings' policy, with another memory
SEEING = dataclasses.replace(SPEC, observations={"state": (4,), "depth": (SIDE, SIDE)})
ENCODER = ("trunk.encoder.", "value_trunk.encoder.")


@dataclasses.dataclass(frozen=True)
class SeeingFactory(ToyVecEnvFactory):
    """Toy environments with pictures large enough for an encoder."""

    def __call__(self, env_ids: Sequence[int]) -> "SeeingVecEnv":
        return SeeingVecEnv(self, env_ids)


class SeeingVecEnv(ToyVecEnv):
    def __init__(self, factory: ToyVecEnvFactory, env_ids: Sequence[int]) -> None:
        super().__init__(factory, env_ids)
        self.spec = SEEING

    def observe(self, env_ids: Sequence[int]) -> Observation:
        shown = super().observe(env_ids)
        waves = np.sin(np.arange(SIDE * SIDE) * (1.0 + shown["state"][:, :1]))
        depth = 0.5 + 0.5 * waves.reshape(-1, SIDE, SIDE)
        return shown | {"depth": depth.astype(np.float32)}


def seen_by(path: Path, spec: EnvSpec = SEEING, **changes: Any) -> EncoderOnly:
    """Saves a policy with another state and memory, and returns its encoder."""
    torch.manual_seed(7)
    other = dataclasses.replace(spec, observations=spec.observations | {"state": (9,)})
    made = ActorCritic(other, dataclasses.replace(CAMERA, **changes))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    tensors, about = checkpoints.policy_part(made)
    checkpoints.save(path, tensors, about)
    whole = checkpoints.load(path)
    return EncoderOnly(whole.path, whole.tensors, whole.note)


def begun(out: Path, init: EncoderOnly | None, steps: int = 72, **changes: Any) -> Trainer:
    ppo = dataclasses.replace(SETTINGS.ppo, learning_rate=0.01)
    policy = dataclasses.replace(POLICY, **changes)
    settings = dataclasses.replace(
        SETTINGS, steps=steps, policy=policy, ppo=ppo, average_steps=40, num_envs=3
    )
    task = TrainTask(SeeingFactory())
    return trainer(out, Silent(), settings=settings, task=task, init=init)


def weights(one: Trainer) -> dict[str, torch.Tensor]:
    return copy.deepcopy(one.policy.state_dict())


def changed(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    return {name for name, tensor in before.items() if not torch.equal(tensor, after[name])}


def of_encoders(names: Any) -> set[str]:
    return {name for name in names if name.startswith(ENCODER)}


@pytest.mark.parametrize("separate", [False, True])
def test_only_the_encoder_is_taken_from_the_checkpoint(tmp_path: Path, separate: bool) -> None:
    init = seen_by(tmp_path / "other")
    fresh = begun(tmp_path / "fresh", None, separate_value=separate)
    one = begun(tmp_path / "out", init, separate_value=separate)
    for made in (fresh, one):
        made.close()
    theirs, mine = init.part("policy"), weights(one)
    taken = of_encoders(mine)
    assert len(taken) == (16 if separate else 8)
    for name in taken:
        assert torch.equal(mine[name], theirs[name.removeprefix("value_")])
    assert changed(weights(fresh), mine) == taken


@pytest.mark.slow
def test_a_frozen_encoder_stays_unchanged_while_the_rest_learns(tmp_path: Path) -> None:
    one = begun(tmp_path / "out", seen_by(tmp_path / "other"), frozen_encoder=True)
    before = weights(one)
    frozen = of_encoders(before)
    assert {n for n, p in one.policy.named_parameters() if not p.requires_grad} == frozen
    moments, _ = one.ppo.state_dict()
    assert not any("encoder." in name for name in moments)
    one.train()
    one.close()
    assert changed(before, weights(one)) == set(before) - frozen
    assert not of_encoders(changed(before, one.acting.state_dict()))
    assert all(p.grad is None for p in one.policy.trunk.encoder.parameters())
    best = checkpoints.load(tmp_path / "out" / checkpoints.FOLDER / checkpoints.BEST)
    assert not of_encoders(changed(before, checkpoints.load_policy(best).state_dict()))
    small, note = halving.halved(best)
    assert len(small) == len(before) and note["policy"]["frozen_encoder"]


@pytest.mark.slow
def test_an_encoder_that_is_not_frozen_learns_too(tmp_path: Path) -> None:
    one = begun(tmp_path / "out", seen_by(tmp_path / "other"))
    before = weights(one)
    one.train()
    one.close()
    assert changed(before, weights(one)) == set(before)


@pytest.mark.slow
@pytest.mark.parametrize("frozen", [True, False])
def test_a_resumed_training_keeps_its_encoder_setting_and_records_its_origin(
    tmp_path: Path, frozen: bool
) -> None:
    init = seen_by(tmp_path / "other.safetensors")
    whole = begun(tmp_path / "whole", init, frozen_encoder=frozen)
    before = of_encoders(weights(whole))
    whole.train()
    whole.close()
    half = begun(tmp_path / "half", init, steps=48, frozen_encoder=frozen)
    half.train()
    half.close()
    (tmp_path / "other.safetensors").unlink()
    again = begun(tmp_path / "half", None, frozen_encoder=frozen)
    again.resume(load_latest(tmp_path / "half"))
    middle = weights(again)
    again.train()
    again.close()
    assert rows(tmp_path / "half")[-1]["steps"] == rows(tmp_path / "whole")[-1]["steps"]
    assert of_encoders(changed(middle, weights(again))) == (set() if frozen else before)
    note = checkpoints.load(tmp_path / "half" / checkpoints.FOLDER / checkpoints.BEST).note
    assert (note["init"]["file"], note["init"]["part"]) == ("other.safetensors", "encoder")


@pytest.mark.parametrize("separate", [True, False])
def test_a_frozen_encoder_encodes_each_step_once(tmp_path: Path, separate: bool) -> None:
    init = seen_by(tmp_path / "other", separate_value=separate)
    one = begun(tmp_path / "out", init, frozen_encoder=True, separate_value=separate)
    policy = one.policy
    kept = {name: column.shape[1:] for name, column in one.rollout.observation.items()}
    sizes = (CAMERA.visual_width * (2 if separate else 1),)
    assert kept == {"state": (4,), VISION: sizes}
    encoded: list[int] = []
    policy.trunk.encoder.register_forward_hook(lambda _, inputs, __: encoded.append(len(inputs[0])))
    one.train()
    one.close()
    assert 72 <= sum(encoded) < 2 * 72  # acting, and values where sequences are cut; 2 epochs


def test_a_policy_acts_the_same_on_images_and_on_their_encoding() -> None:
    policy = ActorCritic(SEEING, dataclasses.replace(POLICY, frozen_encoder=True))
    shown = {"state": torch.rand(2, 4), "depth": torch.rand(2, SIDE, SIDE)}
    inputs = torch.rand(2, 3), policy.initial_memory(2), torch.zeros(2).bool()
    step = policy.act(shown, *inputs)
    again = policy.act({"state": shown["state"], VISION: step.vision}, *inputs)
    torch.testing.assert_close(again.mean, step.mean)
    torch.testing.assert_close(again.value, step.value)


def test_a_frozen_encoder_runs_without_gradients() -> None:
    policy = ActorCritic(SEEING, dataclasses.replace(POLICY, frozen_encoder=True)).train()
    recording: list[bool] = []
    policy.trunk.encoder.register_forward_hook(lambda *_: recording.append(torch.is_grad_enabled()))
    shown = {"state": torch.rand(2, 4), "depth": torch.rand(2, SIDE, SIDE)}
    memory = policy.initial_memory(2)
    step = policy.act(shown, torch.zeros(2, 3), memory, torch.zeros(2).bool())
    assert recording == [False] and step.mean.requires_grad


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoder": "se_resnet9"}, "encoder: encoder is se_resnet9 in .*other, nature_cnn here"),
        ({"encoder_width": 5}, "encoder: encoder_width is 5 in .*other, 4 here"),
        ({"visual_width": 7}, "encoder: visual_width is 7 in .*other, 6 here"),
        ({"encoder": "state"}, "encoder: .*other has no encoder, since it has no camera"),
    ],
)
def test_an_encoder_of_another_architecture_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        begun(tmp_path / "out", seen_by(tmp_path / "other", **change))


def test_an_encoder_for_pictures_of_another_size_is_refused(tmp_path: Path) -> None:
    larger = dataclasses.replace(SEEING, observations={"state": (4,), "depth": (40, 40)})
    with pytest.raises(UserError, match=r"encoder: pictures are 40 x 40 in .*other, 32 x 32 here"):
        begun(tmp_path / "out", seen_by(tmp_path / "other", larger))


# The command.


@pytest.fixture
def driving(tmp_path: Path) -> Path:
    """Folder of a PointNav training with a camera."""
    network = dataclasses.replace(CAMERA, lstm_layers=2)
    return tiny_policies.trained(
        tmp_path / "driving", "pointnav", network=network, depth=(SIDE, SIDE)
    )


def loaded(driving: Path, *words: str) -> TrainingSettings:
    return loading.training(config.parse(["skill=pick", f"encoder={driving}", *words]))


def test_encoder_and_picture_size_come_from_the_checkpoint(
    driving: Path,
) -> None:
    settings, own = loaded(driving, "frozen=true"), loading.training(config.parse(["skill=pick"]))
    policy = settings.preset.policy
    assert (policy.encoder, policy.encoder_width, policy.visual_width) == ("nature_cnn", 4, 6)
    assert settings.depth == SIDE and policy.frozen_encoder
    kept = dataclasses.replace(
        own.preset.policy, encoder="nature_cnn", encoder_width=4, visual_width=6
    )
    assert dataclasses.replace(policy, frozen_encoder=False) == kept
    best = driving / checkpoints.FOLDER / checkpoints.BEST
    assert settings.encoder == str(best) and settings.init is None
    assert not loaded(best).preset.policy.frozen_encoder


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["depth=64"], "encoder: .* uses images of 32 x 32, not of 64 x 64; leave depth out"),
        (
            ["preset.policy.encoder=resnet18"],
            "encoder: preset.policy.encoder is nature_cnn in .*, not resnet18; leave it out",
        ),
        (["preset.policy.encoder_width=8"], "encoder: preset.policy.encoder_width is 4 in .*"),
        (["encoder=/proc/nowhere/x"], "encoder: no checkpoint /proc/nowhere/x"),
        (["init=/proc/nowhere/x"], "encoder: already given by init; leave one of them out"),
    ],
)
def test_settings_that_contradict_the_encoder_are_refused_in_one_line(
    driving: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        loaded(driving, *words)
    assert cli.main(["train", "pick", f"encoder={driving}", *words]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_policy_without_camera_has_no_encoder_to_take(tmp_path: Path) -> None:
    blind = tiny_policies.trained(tmp_path / "blind", "pointnav")
    with pytest.raises(UserError, match=r"^encoder: .*blind.* has no encoder"):
        loaded(blind)
    with pytest.raises(UserError, match=r"^frozen: .*blind.* has no encoder"):
        loading.training(config.parse(["skill=pointnav", f"init={blind}", "frozen=true"]))


def test_freezing_an_encoder_requires_a_checkpoint(
    driving: Path,
) -> None:
    tuned = loading.training(config.parse(["skill=pointnav", f"init={driving}", "frozen=true"]))
    assert tuned.preset.policy.frozen_encoder and tuned.preset.policy.lstm_layers == 2
    with pytest.raises(UserError, match=r"^frozen: needs encoder=CHECKPOINT or init"):
        loading.training(config.parse(["skill=pointnav", "frozen=true"]))
    words = ["skill=pointnav", "preset.policy.frozen_encoder=true"]
    assert loading.training(
        config.parse([*words, f"encoder={driving}"])
    ).preset.policy.frozen_encoder
    with pytest.raises(UserError, match=r"^preset.policy.frozen_encoder: needs encoder="):
        loading.training(config.parse(words))


@pytest.mark.slow
def test_a_resumed_training_refuses_changes_to_its_encoder(driving: Path) -> None:
    (driving / "config.yaml").write_text(config.to_yaml(loaded(driving, "frozen=true")))
    assert loading.training(config.parse([f"resume={driving}"])).preset.policy.frozen_encoder
    assert loading.training(config.parse([f"resume={driving}", "frozen=true"])).frozen
    with pytest.raises(UserError, match=r"^frozen: the encoder of .* is frozen; leave frozen out"):
        loading.training(config.parse([f"resume={driving}", "frozen=false"]))
    with pytest.raises(UserError, match=r"^encoder: .* has weights of its own; leave encoder out"):
        loading.training(config.parse([f"resume={driving}", f"encoder={driving}"]))


def test_an_automatic_resume_drops_settings_of_new_trainings(
    driving: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    latest = driving / checkpoints.FOLDER / checkpoints.LATEST
    latest.write_bytes(b"")
    kept = {"skill": "pick", "frozen": "true"}
    given = {**kept, "out": str(driving), "encoder": str(driving), "resume": "auto"}
    assert loading.resumed(given) == {"resume": str(driving), **kept}


def test_the_encoder_of_a_shipped_policy_can_be_taken(tmp_path: Path) -> None:
    shipped = Path(__file__).parents[2] / "skills" / "pretrained" / "navigate.safetensors"
    settings = loaded(shipped)
    taken = checkpoints.load(shipped)
    policy = settings.preset.policy
    assert policy == warm_start.encoder_of(
        loading.training(config.parse(["skill=pick"])).preset.policy, taken
    )
    side = settings.depth
    made = ActorCritic(EnvSpec({"state": (5,), "depth": (side, side)}, (True,) * 11), policy)
    warm_start.take_over(made, EncoderOnly(taken.path, taken.tensors, taken.note))
    theirs = checkpoints.load_policy(taken).state_dict()
    for name in of_encoders(theirs):
        assert torch.equal(made.state_dict()[name], theirs[name])


def test_policy_settings_without_frozen_encoder_still_load() -> None:
    note = PolicySettings().to_json()
    del note["frozen_encoder"]
    assert PolicySettings.from_json(note) == PolicySettings()
    assert isinstance(loading.training(config.parse(["skill=pick"])).preset, TrainSettings)
