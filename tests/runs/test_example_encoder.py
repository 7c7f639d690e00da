"""The encoder of docs/add_an_encoder.md, from registration to evaluation, in a file of its own."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from tpsrl import cli, config
from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.policy import encoder_registry as encoders
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.policy.encoder_registry import encoder_names, make_encoder, register_encoder
from tpsrl.rl.policy.settings import ENCODER_NAMES, PolicySettings
from tpsrl.rl.run import checkpoint

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples" / "encoder" / "coord_cnn.py"
NAME = "coord_cnn"
KNOWN = f"encoder_modules={FILE}"
IN_THE_BOX = ENCODER_NAMES
STEPS = 128
TINY = [
    f"preset.policy.encoder={NAME}", "preset.policy.encoder_width=4",
    "preset.policy.visual_width=16", "preset.policy.state_width=16", "preset.policy.lstm_width=16",
    f"preset.steps={STEPS}", "preset.num_envs=2", "preset.num_steps=32", "preset.ppo.minibatches=2",
    "depth=32", "processes=0", "threads=1", "validation_episodes=0",
]  # fmt: skip


def forget() -> None:
    """Unregisters the encoder of the example."""
    encoders.unregister_encoder(NAME)
    sys.modules.pop(NAME, None)


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undoes registrations, which otherwise last for the process shared by all tests."""
    monkeypatch.setenv(encoders.VARIABLE, "")
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in set(encoder_names()) - set(IN_THE_BOX):
        encoders.unregister_encoder(name)
    forget()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a training with the encoder, which is unregistered afterwards."""
    out = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(encoders.VARIABLE, "")
        patch.setattr(sys, "path", list(sys.path))
        assert cli.main(["train", "pointnav", KNOWN, *TINY, f"out={out}"]) == 0
    forget()
    return out


def evaluate(trained: Path, out: Path, *words: str) -> int:
    alone = ["num_episodes=2", "protocol.alone.pointnav.steps=20", f"agent={trained}"]
    return cli.main(["eval", "pointnav", *alone, f"out={out}", *words])


def load() -> None:
    encoders.load_modules(str(FILE))


# -- the example -------------------------------------------------------------------------------


def test_the_example_is_trained(trained: Path) -> None:
    found = checkpoint.load(trained / "checkpoints" / "best.safetensors")
    assert found.note["steps"] == STEPS
    assert found.note["policy"]["encoder"] == NAME
    assert "trunk.encoder.body.0.weight" in found.part("policy")


def test_evaluations_are_the_same_in_one_and_in_two_processes(
    trained: Path, tmp_path: Path
) -> None:
    reports = []
    for processes in (1, 2):
        out = tmp_path / str(processes)
        assert evaluate(trained, out, KNOWN, f"processes={processes}") == 0
        reports.append(json.loads((out / "report.json").read_text()))
    assert reports[0] == reports[1]
    assert reports[0]["learned"]["pointnav"]["trained_steps"] == STEPS


def test_a_training_records_the_file_of_its_encoder(trained: Path, tmp_path: Path) -> None:
    assert config.entry_of(trained / "config.yaml", "encoder_modules") == str(FILE)
    copy, more = shutil.copytree(trained, tmp_path / "copy"), STEPS + 64
    assert cli.main(["train", f"resume={copy}", f"preset.steps={more}"]) == 0
    assert checkpoint.load(copy / "checkpoints" / "latest.safetensors").note["steps"] == more


def test_a_checkpoint_with_an_unknown_encoder_names_its_file(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes((trained / "checkpoints" / "best.safetensors").read_bytes())
    assert evaluate(copy, tmp_path / "out") == 2
    printed = capsys.readouterr().err
    assert f"copy.safetensors has an unknown encoder, '{NAME}'; register it with {KNOWN}" in printed
    assert printed.count("\n") == 1
    assert NAME not in encoder_names()  # Loading the checkpoint runs no code.


@pytest.mark.parametrize("command", [["train", "pointnav"], ["bench", "train"]])
def test_an_unknown_encoder_is_refused_before_the_run(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*command, f"preset.policy.encoder={NAME}", f"out={tmp_path / 'out'}"]) == 2
    printed = capsys.readouterr().err
    assert f"preset.policy.encoder: unknown value '{NAME}'" in printed
    assert "register your own encoders with encoder_modules=FILE_OR_MODULE" in printed
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["train pointnav", "bench train", "eval pick", "video skills"])
def test_a_relative_module_path_is_stored_as_an_absolute_path(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FILE.parent)
    _, settings = cli.parse([*command.split(), f"encoder_modules={FILE.name}"])
    assert settings.encoder_modules == str(FILE)


@pytest.mark.parametrize("shape", [(32, 32), (64, 64), (33, 100)])
def test_the_encoder_distinguishes_images_independently_of_their_batch(
    shape: tuple[int, int],
) -> None:
    load()
    encoder = make_encoder(NAME, 8, {"depth": shape}, 24)
    assert encoder is not None
    images = torch.rand(5, *shape, generator=torch.Generator().manual_seed(1))
    vectors = encoder(images)
    assert vectors.shape == (5, 24) and torch.pdist(vectors).min() > 1e-4
    torch.testing.assert_close(encoder(images[3:4])[0], vectors[3], rtol=1e-4, atol=1e-5)


def test_the_encoder_distinguishes_positions_in_an_empty_image() -> None:
    load()
    encoder = make_encoder(NAME, 8, {"depth": (64, 64)}, 24)
    assert encoder is not None
    features = encoder.body(torch.cat((torch.zeros(1, 1, 64, 64), encoder.place), 1))
    # The middle of the image is unaffected by padding.
    assert not torch.allclose(features[0, :, 3, 3], features[0, :, 4, 4], atol=1e-3)


# -- registration ------------------------------------------------------------------------------


class Flat(nn.Module):
    """Encoder with a single linear layer."""

    def __init__(self, width: int, shape: tuple[int, int], size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(shape[0] * shape[1], size)

    def forward(self, depth: torch.Tensor) -> torch.Tensor:
        return self.linear(depth.flatten(1))


class Other(Flat):
    """Encoder of another class."""


class TooWide(Flat):
    """Encoder whose output is larger than requested."""

    def forward(self, depth: torch.Tensor) -> torch.Tensor:
        return super().forward(depth).repeat(1, 2)


class Mixing(Flat):
    """Encoder whose output depends on the other images of the batch."""

    def __init__(self, width: int, shape: tuple[int, int], size: int) -> None:
        super().__init__(width, shape, size)
        self.norm = nn.BatchNorm1d(size)

    def forward(self, depth: torch.Tensor) -> torch.Tensor:
        return self.norm(super().forward(depth))


def test_registered_encoders_follow_the_built_in_ones_in_alphabetical_order() -> None:
    register_encoder("zigzag", Flat)
    register_encoder("flat", Other)
    assert encoder_names() == (*IN_THE_BOX, "flat", "zigzag")


def test_a_name_can_be_registered_for_one_class_only() -> None:
    with pytest.raises(UserError, match="encoder: 'resnet18' is registered already"):
        register_encoder("resnet18", Flat)
    register_encoder("flat", Flat)
    with pytest.raises(UserError, match="encoder: 'flat' is registered already"):
        register_encoder("flat", Other)
    register_encoder("flat", Flat)  # as in a script that its workers import


@pytest.mark.parametrize("name", ["Flat", "flat-cnn", "2d", ""])
def test_an_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"encoder: '{name}' is not a valid name"):
        register_encoder(name, Flat)


def test_a_value_that_is_not_a_module_class_is_refused() -> None:
    with pytest.raises(UserError, match=r"encoder flat: 3 is not a subclass of torch\.nn\.Module"):
        register_encoder("flat", 3)  # type: ignore[arg-type]


def test_an_encoder_with_an_output_of_another_size_is_refused() -> None:
    register_encoder("flat", TooWide)
    with pytest.raises(
        UserError, match=r"encoder flat: returns \(3, 16\) for 3 images, .* \(3, 8\)"
    ):
        make_encoder("flat", 4, {"depth": (32, 32)}, 8)


def test_an_encoder_with_batch_statistics_is_refused() -> None:
    register_encoder("flat", Mixing)
    with pytest.raises(UserError, match=r"encoder flat: .* do not use batch normalisation"):
        make_encoder("flat", 4, {"depth": (32, 32)}, 8)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("empty.py", "", "encoder_modules: .*empty.py registers no encoder"),
        ("broken.py", "1 / 0", r"encoder_modules: cannot import .*broken.py \(ZeroDivisionError"),
        ("absent.py", None, "encoder_modules: there is no file .*absent.py"),
        ("absent_module", None, r"encoder_modules: cannot import absent_module \(ModuleNotFound"),
    ],
)
def test_an_invalid_encoder_module_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str | None, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=message) as raised:
        encoders.load_modules(name)
    sys.modules.pop(Path(name).stem, None)
    assert "\n" not in str(raised.value) and encoder_names() == IN_THE_BOX


# -- checkpoints -------------------------------------------------------------------------------


def saved(path: Path, encoder: str) -> checkpoint.Checkpoint:
    spec = EnvSpec({"state": (3,), "depth": (32, 32)}, (True, True))
    network = PolicySettings(encoder=encoder, visual_width=8, state_width=8, lstm_layers=0)
    tensors, note = checkpoint.policy_part(ActorCritic(spec, network))
    checkpoint.save(path, tensors, note)
    return checkpoint.load(path)


def test_a_checkpoint_records_the_file_of_its_encoder(tmp_path: Path) -> None:
    load()
    found = saved(tmp_path / "own", NAME)
    assert found.note["encoder_module"] == str(FILE)
    assert checkpoint.load_policy(found).settings.encoder == NAME
    assert "encoder_module" not in saved(tmp_path / "ours", "nature_cnn").note


def test_an_encoder_in_a_package_is_recorded_by_module_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_mine").mkdir()
    (tmp_path / "of_mine" / "coord.py").write_text(FILE.read_text())
    monkeypatch.chdir(tmp_path)
    assert encoders.load_modules("of_mine.coord") == "of_mine.coord"
    assert saved(tmp_path / "own", NAME).note["encoder_module"] == "of_mine.coord"
    for module in ("of_mine", "of_mine.coord"):
        del sys.modules[module]


def test_a_checkpoint_without_a_module_explains_how_to_register_encoders(
    tmp_path: Path,
) -> None:
    load()
    found = saved(tmp_path / "own", NAME)
    del found.note["encoder_module"]
    forget()
    with pytest.raises(UserError, match=f"encoder: unknown value '{NAME}'.*encoder_modules="):
        checkpoint.load_policy(found)
