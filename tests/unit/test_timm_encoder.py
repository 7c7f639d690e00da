"""Encoders from timm: by a stand-in for the package, and by timm where it is installed."""

import dataclasses
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from toy_training import SETTINGS
from toy_vec_env import SPEC

from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.rl.policy import timm_encoder
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.policy.towers import Tower, Towers
from tpsrl.rl.run import checkpoint as checkpoints
from tpsrl.rl.run import warm_start
from tpsrl.training import loading

WIDTH = 5


class TinyNet(nn.Module):
    """A network like those of timm, with batch normalisation and statistics of the pretraining."""

    pretrained_cfg: Mapping[str, Any] = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.2, 0.4)}

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, WIDTH, 3)
        self.norm = nn.BatchNorm2d(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x)).mean((2, 3))


def create_model(
    name: str,
    pretrained: bool,
    num_classes: int,
    in_chans: int,
    pretrained_cfg_overlay: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Creates the network as timm does; `tiny_vit`, which takes `img_size`, is not among these."""
    assert name == "tiny" and num_classes == 0
    net = TinyNet(in_chans)
    if pretrained:
        assert pretrained_cfg_overlay is not None
        weights = dict(pretrained_cfg_overlay["state_dict"])
        if in_chans == 1:
            weights["conv.weight"] = weights["conv.weight"].sum(1, keepdim=True)
        net.load_state_dict(weights)
    return net


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a stand-in with one network, `tiny`, in place of timm."""
    stand_in = types.ModuleType("timm")
    vars(stand_in).update(list_models=lambda: ["tiny"], create_model=create_model)
    monkeypatch.setitem(sys.modules, "timm", stand_in)
    timm_encoder.check.cache_clear()
    timm_encoder.takes_size.cache_clear()


def weights_of(path: Path) -> dict[str, torch.Tensor]:
    """Writes weights of `tiny` for colour images, and returns them."""
    torch.manual_seed(3)
    net = TinyNet(3)
    net.norm.running_mean = torch.randn(WIDTH)
    tensors = {name: tensor.contiguous() for name, tensor in net.state_dict().items()}
    save_file(tensors, path)
    return tensors


def policy_for(pictures: Mapping[str, tuple[int, ...]], **changes: Any) -> ActorCritic:
    settings = dataclasses.replace(SETTINGS.policy, encoder="timm:tiny", **changes)
    spec = dataclasses.replace(SPEC, observations={"state": (4,), **pictures})
    return ActorCritic(spec, settings)


def tower_of(policy: ActorCritic) -> Tower:
    encoder = policy.trunk.encoder
    assert isinstance(encoder, Towers)
    tower = encoder.towers[0]
    assert isinstance(tower, Tower)
    return tower


@pytest.mark.usefixtures("timm")
@pytest.mark.parametrize(
    ("pictures", "mean"),
    [
        ({"depth": (40, 40)}, [0.4]),
        ({"head_rgb": (40, 40, 3)}, [0.5, 0.4, 0.3]),
    ],
)
def test_pretrained_weights_and_statistics_are_taken_from_a_file(
    tmp_path: Path, pictures: dict[str, tuple[int, ...]], mean: list[float]
) -> None:
    path = tmp_path / "tiny.safetensors"
    weights = weights_of(path)
    policy = policy_for(pictures, frozen_encoder=True)
    warm_start.take_over(policy, warm_start.EncoderFile(path, {}, {}, "encoder_weights"))
    tower = tower_of(policy)
    torch.testing.assert_close(tower.norm.mean, torch.tensor(mean))
    images = {name: torch.rand(2, *shape) for name, shape in pictures.items()}
    images = {n: i * 255 if n == "head_rgb" else i for n, i in images.items()}
    net = TinyNet(3).eval()
    net.load_state_dict(weights)
    shown = tower.norm(tower.channels(images))
    found = tower.encoder.body(shown)  # type: ignore[operator, union-attr]
    with torch.no_grad():
        wanted = net(shown if shown.shape[1] == 3 else shown.expand(-1, 3, -1, -1))
    torch.testing.assert_close(found, wanted)


@pytest.mark.usefixtures("timm")
def test_each_channel_is_normalised_by_the_moments_of_its_kind() -> None:
    names = {"head_instance": (40, 40), "depth": (40, 40), "hand_rgb": (40, 40, 3)}
    tower = tower_of(policy_for(names))
    tower.expect([0.5, 0.4, 0.3], [0.2, 0.2, 0.5])
    mean, std = tower.norm.mean.tolist(), tower.norm.variance.sqrt().tolist()
    assert mean == pytest.approx([0.0, 0.0, 0.0, 0.4, 0.5, 0.4, 0.3])
    assert std == pytest.approx([1.0, 1.0, 1.0, 0.3, 0.2, 0.2, 0.5])


@pytest.mark.usefixtures("timm")
def test_the_vector_of_an_image_does_not_depend_on_others_in_training_mode() -> None:
    tower = tower_of(policy_for({"depth": (40, 40)}).train())
    images = {"depth": torch.rand(3, 40, 40)}
    both = tower(images)
    torch.testing.assert_close(both[:2], tower({"depth": images["depth"][:2]}))
    assert bool((both[0] != both[1]).any())


@pytest.mark.usefixtures("timm")
def test_a_checkpoint_has_the_weights_and_needs_no_file(tmp_path: Path) -> None:
    path = tmp_path / "tiny.safetensors"
    weights_of(path)
    policy = policy_for({"head_rgb": (40, 40, 3)})
    warm_start.take_over(policy, warm_start.EncoderFile(path, {}, {}, "encoder_weights"))
    path.unlink()
    checkpoints.save(tmp_path / "saved", *checkpoints.policy_part(policy))
    again = checkpoints.load_policy(checkpoints.load(tmp_path / "saved"))
    images = {"head_rgb": torch.rand(2, 40, 40, 3) * 255}
    torch.testing.assert_close(tower_of(again)(images), tower_of(policy)(images))


@pytest.mark.usefixtures("timm")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("encoder=timm:tinny", r"^preset\.policy\.encoder: .*timm:tinny.*timm:tiny"),
        ("frozen=true encoder=timm:tiny", r"^frozen: needs encoder_weights=FILE"),
        ("encoder=timm:tiny encoder_weights=none.bin", r"^encoder_weights: no file .*none\.bin"),
        ("encoder_weights=none.bin", r"^encoder_weights: needs encoder=timm:NAME"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: str, message: str) -> None:
    from tpsrl.training import checks

    with pytest.raises(UserError, match=message):
        checks.checked(loading.training(config.parse(["skill=pick", *given.split()])))


@pytest.mark.usefixtures("timm")
def test_a_file_of_another_network_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_file({"conv.weight": torch.zeros(1)}, path)
    policy = policy_for({"head_rgb": (40, 40, 3)})
    with pytest.raises(UserError, match=r"^encoder_weights: .* has no weights of tiny"):
        warm_start.take_over(policy, warm_start.EncoderFile(path, {}, {}, "encoder_weights"))
    path.write_bytes(b"no tensors")
    with pytest.raises(UserError, match=r"^encoder_weights: .* is not a file of weights"):
        warm_start.take_over(policy, warm_start.EncoderFile(path, {}, {}, "encoder_weights"))


def test_timm_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    timm_encoder.check.cache_clear()
    with pytest.raises(
        UserError, match=r"^encoder: timm is not installed; pip install tpsrl\[timm"
    ):
        timm_encoder.check("timm:resnet18")


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_networks_of_the_installed_package_load_weights(
    tmp_path: Path, name: str, channels: int
) -> None:
    real = pytest.importorskip("timm", reason="timm is not installed (pip install tpsrl[timm])")
    torch.manual_seed(0)
    net = real.create_model(name, num_classes=10)
    path = tmp_path / "net.safetensors"
    save_file({n: t.contiguous() for n, t in net.state_dict().items()}, path)
    shapes = {1: {"depth": (64, 64)}, 3: {"head_rgb": (64, 64, 3)}}
    shapes[4] = shapes[1] | shapes[3]
    settings = dataclasses.replace(SETTINGS.policy, encoder=f"timm:{name}", frozen_encoder=True)
    spec = dataclasses.replace(SPEC, observations={"state": (4,), **shapes[channels]})
    policy = ActorCritic(spec, settings)
    warm_start.take_over(policy, warm_start.EncoderFile(path, {}, {}, "encoder_weights"))
    shown = torch.rand(2, channels, 64, 64)
    body = tower_of(policy).encoder.body
    found = body(shown)  # type: ignore[operator]
    assert found.shape[0] == 2 and bool(torch.isfinite(found).all())
    if channels == 3:
        size = {} if name == "resnet18" else {"img_size": (64, 64)}
        plain = real.create_model(name, num_classes=0, **size).eval()
        plain.load_state_dict(body.state_dict())
        torch.testing.assert_close(found, plain(shown))
    layer = "conv1.weight" if name == "resnet18" else "patch_embed.proj.weight"
    if channels == 1:
        torch.testing.assert_close(
            body.state_dict()[layer], net.state_dict()[layer].sum(1, keepdim=True)
        )
