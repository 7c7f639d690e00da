"""Trainings that start from the weights of a checkpoint, or first learn only the value."""

import copy
import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_training import SETTINGS, Silent, rows, trainer
from toy_vec_env import SPEC

from skills import registry
from skills.core.inputs import PolicyInputs
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.policy import glimpse
from tpsrl.rl.policy.actor_critic import CRITIC, ActorCritic
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.rl.run import checkpoint as checkpoints
from tpsrl.rl.run import warm_start
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.rl.run.trainer import Trainer, load_latest
from tpsrl.training import loading
from tpsrl.training.fine_tuning import widened
from tpsrl.training.settings import TrainingSettings
from tpsrl.world import action as act

PICK = registry.get("pick").definition
OWN = ("initial_std", "min_std", "max_std", "dtype")


def clone(
    path: Path, policy: PolicySettings = SETTINGS.policy, spec: EnvSpec = SPEC, **note: Any
) -> checkpoints.Checkpoint:
    """Saves a policy with noise on every parameter and returns its checkpoint."""
    torch.manual_seed(7)
    made = ActorCritic(spec, policy)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    tensors, about = checkpoints.policy_part(made)
    checkpoints.save(path, tensors, {**about, **note})
    return checkpoints.load(path)


def tuned(own: PolicySettings, init: checkpoints.Checkpoint) -> TrainSettings:
    return dataclasses.replace(SETTINGS, policy=warm_start.network(own, init))


def begun(out: Path, settings: TrainSettings, init: checkpoints.Checkpoint) -> Trainer:
    return trainer(out, settings=settings, init=init)


# Weights.


@pytest.mark.parametrize("lstm_layers", [0, 1])
@pytest.mark.parametrize("separate", [False, True])
def test_a_new_glimpse_has_no_effect_at_first(
    tmp_path: Path, lstm_layers: int, separate: bool
) -> None:
    old = dataclasses.replace(
        SETTINGS.policy, encoder="nature_cnn", lstm_layers=lstm_layers, separate_value=separate
    )
    columns = SPEC.observations["state"][0]
    gazing = dataclasses.replace(
        SPEC,
        observations={**SPEC.observations, "depth": (80, 80)},
        gaze=(columns - 3, columns),
        far=10.0,
    )
    half = {**SPEC.observations, "depth": (40, 40)}
    init = clone(tmp_path / "clone", old, dataclasses.replace(gazing, observations=half))
    own = warm_start.network(dataclasses.replace(SETTINGS.policy, glimpse=32), init)
    assert own.glimpse == 32
    policy, before = ActorCritic(gazing, own), checkpoints.load_policy(init)
    warm_start.take_over(policy, init)
    observation = {"state": torch.rand(5, columns), "depth": torch.rand(5, 80, 80)}
    rest = (torch.zeros(5, SPEC.action_size), policy.initial_memory(5), torch.ones(5) > 0)
    halved = {**observation, "depth": glimpse.whole(observation["depth"])}
    after, expected = policy.act(observation, *rest), before.act(halved, *rest)
    assert torch.allclose(after.mean, expected.mean, atol=1e-6)
    # The glimpse learns, and is kept in a checkpoint.
    policy.act(observation, *rest).mean.sum().backward()
    weights = checkpoints.policy_part(policy)
    checkpoints.save(tmp_path / "glimpse", *weights)
    again = checkpoints.load_policy(checkpoints.load(tmp_path / "glimpse"))
    assert again.spec.gaze == gazing.gaze
    assert torch.equal(again.act(observation, *rest).mean, after.mean)


def test_the_network_is_the_checkpoints_and_the_std_the_trainings_own(tmp_path: Path) -> None:
    init = clone(tmp_path / "clone")
    own = PolicySettings(encoder="nature_cnn", lstm_width=99, initial_std=0.15, min_std=0.01)
    found = warm_start.network(own, init)
    changed = dataclasses.replace(SETTINGS.policy, **{n: getattr(own, n) for n in OWN})
    assert found == changed and found.initial_std == 0.15 and found.encoder == "state"


@pytest.mark.parametrize("lstm_layers", [0, 1])
@pytest.mark.parametrize("before", [{"depth": (40, 40)}, {"depth": (36, 40), "hand_rgb": (40, 44)}])
def test_a_new_image_has_no_effect_at_first(
    tmp_path: Path, lstm_layers: int, before: dict[str, tuple[int, int]]
) -> None:
    own = dataclasses.replace(SETTINGS.policy, encoder="nature_cnn", lstm_layers=lstm_layers)
    shapes: dict[str, tuple[int, ...]] = {
        name: (*size, 3) if "rgb" in name else size for name, size in before.items()
    }
    narrow = dataclasses.replace(SPEC, observations={**SPEC.observations, **shapes})
    wide: dict[str, tuple[int, ...]] = {**SPEC.observations, "hand_depth": (48, 48), **shapes}
    init = clone(tmp_path / "clone", own, narrow)
    policy = ActorCritic(
        dataclasses.replace(SPEC, observations=wide), warm_start.network(own, init)
    )
    warm_start.take_over(policy, init)
    torch.manual_seed(0)
    shown = {name: torch.rand(4, *shape) for name, shape in wide.items()}
    rest = (torch.randn(4, 3), torch.randn(4, policy.memory_size), torch.zeros(4).bool())
    wanted = checkpoints.load_policy(init).act(shown, *rest)
    found = policy.act(shown, *rest)
    # The variance of a normalisation without effect is 1.0001.
    torch.testing.assert_close(found.mean, wanted.mean, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(found.value, wanted.value, atol=1e-4, rtol=1e-3)
    found.mean.square().sum().backward()
    name = "trunk.recurrent.lstm.weight_ih_l0" if lstm_layers else "action_head.mean.weight"
    gradient = policy.get_parameter(name).grad
    assert gradient is not None and bool(
        (gradient[:, policy.get_parameter(name).eq(0.0).all(0)] != 0.0).any()
    )


def test_a_new_image_of_the_size_of_an_old_one_is_an_error(tmp_path: Path) -> None:
    own = dataclasses.replace(SETTINGS.policy, encoder="nature_cnn")
    narrow = {**SPEC.observations, "depth": (40, 40)}
    init = clone(tmp_path / "clone", own, dataclasses.replace(SPEC, observations=narrow))
    wide = dataclasses.replace(SPEC, observations={**narrow, "head_rgb": (40, 40, 3)})
    policy = ActorCritic(wide, warm_start.network(own, init))
    with pytest.raises(UserError, match=r"^cameras: head_rgb must have another size than 40 x 40"):
        warm_start.take_over(policy, init)


@pytest.mark.parametrize("std", ["parameter", "network"])
def test_a_policy_acts_as_the_checkpoint_with_its_own_std(tmp_path: Path, std: Any) -> None:
    init = clone(tmp_path / "clone", dataclasses.replace(SETTINGS.policy, std=std))
    one = begun(tmp_path / "out", tuned(PolicySettings(initial_std=0.15), init), init)
    one.close()
    theirs = checkpoints.load_policy(init)
    torch.manual_seed(0)
    shown = {"state": torch.randn(4, 4)}
    inputs = (shown, torch.randn(4, 3), torch.randn(4, theirs.memory_size), torch.zeros(4).bool())
    mine, wanted = one.policy.act(*inputs), theirs.act(*inputs)
    assert torch.equal(mine.mean, wanted.mean) and torch.equal(mine.value, wanted.value)
    torch.testing.assert_close(mine.std, torch.full((4, 3), 0.15))
    assert not torch.allclose(wanted.std, mine.std, rtol=0.1)


def test_a_missing_value_network_starts_as_a_copy_of_the_policys(
    tmp_path: Path,
) -> None:
    init = clone(tmp_path / "clone")
    own = PolicySettings(separate_value=True, initial_std=0.15)
    one = begun(tmp_path / "out", tuned(own, init), init)
    one.close()
    weights, theirs = one.policy.state_dict(), init.part("policy")
    trunk = [name for name in weights if name.startswith("trunk.")]
    assert len(trunk) > 4
    for name in trunk:
        assert torch.equal(weights[name], theirs[name])
        assert torch.equal(weights[f"value_{name}"], theirs[name])
    assert not torch.equal(weights["value_head.weight"], theirs["value_head.weight"])
    assert float(weights["value_head.bias"]) == 0.0
    # The networks are separate: a change of the value network does not change the policy.
    with torch.no_grad():
        one.policy.get_parameter("value_trunk.embed.0.weight").zero_()
    assert torch.equal(one.policy.state_dict()["trunk.embed.0.weight"], theirs[trunk[0]])


def test_a_value_network_of_the_checkpoint_is_taken_over(tmp_path: Path) -> None:
    init = clone(tmp_path / "clone", dataclasses.replace(SETTINGS.policy, separate_value=True))
    one = begun(tmp_path / "out", tuned(PolicySettings(), init), init)
    one.close()
    for name, tensor in one.policy.state_dict().items():
        assert name == "action_head.log_std" or torch.equal(tensor, init.part("policy")[name])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            dataclasses.replace(SPEC, observations={"state": (5,), "depth": (2, 3)}),
            "init: observation state is 5 in .*clone, 4 here",
        ),
        (
            dataclasses.replace(SPEC, observations={"state": (4,)}),
            "init: observation depth is missing in .*clone, 2 x 3 here",
        ),
        (
            dataclasses.replace(SPEC, mask=(True, False, False)),
            "init: the action mask has parts 0 of 3 in .*clone, parts 0, 1 of 3 here",
        ),
    ],
)
def test_a_checkpoint_for_other_environments_is_refused(
    tmp_path: Path, spec: EnvSpec, message: str
) -> None:
    init = clone(tmp_path / "clone", spec=spec)
    with pytest.raises(UserError, match=message):
        begun(tmp_path / "out", tuned(PolicySettings(), init), init)


# The training.


@pytest.mark.slow
def test_a_resumed_training_records_its_checkpoint_but_does_not_need_the_file(
    tmp_path: Path,
) -> None:
    init = clone(tmp_path / "clone.safetensors")
    settings = tuned(PolicySettings(separate_value=True, initial_std=0.15), init)
    settings = dataclasses.replace(
        settings,
        ppo=dataclasses.replace(
            settings.ppo, schedule="adaptive", desired_kl=1e-4, value_warm_up=50, rate_max=1.0
        ),
    )
    digest = hashlib.sha256(init.path.read_bytes()).hexdigest()
    origin = {"file": "clone.safetensors", "digest": digest[:16]}
    whole = begun(tmp_path / "whole", settings, init)
    whole.train()
    whole.close()
    half = begun(tmp_path / "half", dataclasses.replace(settings, steps=120), init)
    half.train()
    half.close()
    (tmp_path / "clone.safetensors").unlink()
    second = trainer(tmp_path / "half", settings=settings)
    second.resume(load_latest(tmp_path / "half"))
    second.train()
    second.close()
    assert rows(tmp_path / "half") == rows(tmp_path / "whole")
    for name in (checkpoints.LATEST, checkpoints.BEST):
        note = checkpoints.load(tmp_path / "half" / checkpoints.FOLDER / name).note
        assert note["init"] == origin


@pytest.mark.slow
def test_only_the_value_is_learned_during_its_warm_up(tmp_path: Path) -> None:
    init = clone(tmp_path / "clone")
    settings = tuned(PolicySettings(separate_value=True, initial_std=0.15), init)
    settings = dataclasses.replace(
        settings, steps=72, ppo=dataclasses.replace(settings.ppo, value_warm_up=40)
    )
    kept: list[dict[str, torch.Tensor]] = []
    watcher = Silent()
    one = trainer(tmp_path / "out", watcher, settings=settings, init=init)
    watcher.update = lambda row: kept.append(copy.deepcopy(one.policy.state_dict()))  # type: ignore[method-assign]
    kept.append(copy.deepcopy(one.policy.state_dict()))
    one.train()
    one.close()

    def changed(before: int, after: int) -> set[str]:
        both = zip(kept[before].items(), kept[after].values(), strict=True)
        return {name.split(".")[0] for (name, one), other in both if not torch.equal(one, other)}

    assert changed(0, 1) == changed(1, 2) == {"value_trunk", "value_head"}
    assert changed(2, 3) == {"value_trunk", "value_head", "trunk", "action_head"}


# The command.


@pytest.fixture
def picking(tmp_path: Path) -> Path:
    """Folder of a training whose best checkpoint has deployment settings."""
    folder = tmp_path / "picking"
    (folder / checkpoints.FOLDER).mkdir(parents=True)
    deploy = {"skill": "pick", "sensors": list(PICK.sensors), "depth": [32, 32], "delay": True}
    mask = PICK.mask()
    mask[act.BASE] = False
    size = PolicyInputs("pick", PICK.sensors).size
    clone(
        folder / checkpoints.FOLDER / checkpoints.BEST,
        PolicySettings(encoder="nature_cnn", visual_width=8, state_width=8, lstm_width=8),
        EnvSpec({"state": (size,), "depth": (32, 32)}, tuple(mask.tolist())),
        deploy=deploy,
    )
    return folder


def loaded(picking: Path, *words: str) -> TrainingSettings:
    return loading.training(
        config.parse(["skill=pick", "preset=fine_tune", f"init={picking}", *words])
    )


def test_camera_sensors_delay_and_network_come_from_the_checkpoint(picking: Path) -> None:
    settings = loaded(picking, "preset.policy.initial_std=0.2")
    assert (settings.depth, settings.sensors, settings.delay) == (32, "habitat", True)
    assert not settings.base_movement
    policy = settings.preset.policy
    assert (policy.encoder, policy.lstm_layers, policy.lstm_width) == ("nature_cnn", 2, 8)
    assert policy.critic and not policy.separate_value and policy.initial_std == 0.2
    assert settings.init == str(picking / checkpoints.FOLDER / checkpoints.BEST)
    again = loaded(picking / checkpoints.FOLDER / checkpoints.BEST, "depth=32", "delay=true")
    assert dataclasses.replace(again, preset=settings.preset) == settings


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("depth=64", "^depth: 64, but .*best.safetensors was made with 32$"),
        ("sensors=full", "^sensors: full, but .* was made with habitat$"),
        ("delay=false", "^delay: false, but .* was made with true$"),
        ("base_movement=true", "^base_movement: true, but .* was made with false$"),
        ("preset.policy.lstm_width=9", "^preset.policy.lstm_width: 9, but .* was made with 8$"),
        ("skill=place", "^init: .*best.safetensors is a policy for pick, not for place$"),
        ("init=/proc/nowhere/x", "^init: no checkpoint /proc/nowhere/x$"),
    ],
)
def test_settings_that_contradict_the_checkpoint_are_refused(
    picking: Path, word: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        loaded(picking, word)


def test_a_checkpoint_without_deployment_settings_is_refused(tmp_path: Path) -> None:
    clone(tmp_path / "clone")
    with pytest.raises(UserError, match="has no 'deploy'"):
        loaded(tmp_path / "clone")


def test_a_resumed_training_refuses_other_weights(picking: Path) -> None:
    (picking / "config.yaml").write_text(config.to_yaml(loaded(picking)))
    with pytest.raises(UserError, match=r"^init: .*picking has weights of its own; leave init out"):
        loading.training(config.parse([f"resume={picking}", f"init={picking}"]))
    assert loading.training(config.parse([f"resume={picking}"])).preset == loaded(picking).preset


def test_a_teacher_can_be_fine_tuned_with_additional_sensors(tmp_path: Path) -> None:
    """New sensors have no effect on action and value before the training."""
    wide = PolicyInputs.of("pick", "teacher")
    few = tuple(name for name in wide.sensors if name not in ("scan", "elapsed"))
    narrow = PolicyInputs("pick", few)
    sizes = [narrow.size, wide.size]
    mask = tuple(PICK.mask().tolist())
    specs = [EnvSpec({"state": (size,), CRITIC: (size + 1,)}, mask) for size in sizes]
    small = PolicySettings(
        encoder="state", state_width=8, lstm_layers=0, critic=True, magnify_state=True
    )
    deploy = {"skill": "pick", "sensors": list(narrow.sensors), "depth": None, "delay": False}
    path = tmp_path / "teacher"
    before = checkpoints.load_policy(clone(path, small, specs[0], deploy=deploy))
    settings = loading.training(config.parse(["skill=pick", "preset=teacher", f"init={path}"]))
    assert settings.sensors == "teacher"
    policy = ActorCritic(specs[1], settings.preset.policy)
    warm_start.take_over(policy, widened(checkpoints.load(path), settings))
    state, left = torch.randn(5, sizes[1]), torch.rand(5, 1)
    columns = torch.tensor(wide.places(narrow))
    found = []
    for net, seen in ((before, state[:, columns]), (policy, state)):
        observation = {"state": seen, CRITIC: torch.cat((seen, left), dim=1)}
        blank = torch.zeros(5, len(mask))
        found.append(net.act(observation, blank, torch.zeros(5, 0), torch.ones(5, dtype=bool)))
    torch.testing.assert_close(found[1].mean, found[0].mean)
    torch.testing.assert_close(found[1].value, found[0].value)
