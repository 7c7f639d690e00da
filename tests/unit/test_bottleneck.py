"""Encoders of the DD-PPO paper, compared with the published networks, and their ChannelNorm."""

from pathlib import Path

import pytest
import torch
from torch import nn

from tpsrl import cli
from tpsrl.rl.policy.bottleneck import ResNet50, SeResNeXt50, SeResNeXt101
from tpsrl.rl.policy.channel_norm import ChannelNorm
from tpsrl.rl.policy.encoder_registry import make_encoder
from tpsrl.rl.policy.settings import ENCODER_NAMES

DOCS = Path(__file__).parents[2] / "docs"
KINDS = {"resnet50": ResNet50, "se_resnext50": SeResNeXt50, "se_resnext101": SeResNeXt101}
# Without the classification layer: torchvision's ResNet-50, timm's SE-ResNeXt 32 x 4d.
PUBLISHED = {"resnet50": 23_508_032, "se_resnext50": 25_510_896, "se_resnext101": 46_906_416}


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("name", KINDS)
def test_encoders_of_full_width_have_the_published_number_of_parameters(name: str) -> None:
    with torch.device("meta"):
        made = KINDS[name](64, (3, 64, 64), 8)
    assert count(made.body) == PUBLISHED[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    ("side", "compressed"), [(64, (1024, 1)), (128, (512, 4)), (256, (128, 16))]
)
def test_the_last_feature_map_is_compressed_to_at_most_2048_numbers(
    name: str, side: int, compressed: tuple[int, int]
) -> None:
    with torch.device("meta"):
        made = make_encoder(name, 32, {"depth": (side, side)}, 512)
        assert made is not None
        vectors = made(torch.empty(2, side, side))
        image = torch.nn.functional.avg_pool2d(torch.empty(2, 1, side, side), 2)
        last = made.body(image)
    assert vectors.shape == (2, 512)
    assert last.shape == (2, 1024, side // 64, side // 64)
    channels, pixels = compressed
    assert made.head.compress(last).shape[1] == channels
    assert made.head.linear.in_features == channels * pixels <= 2048


def test_an_encoder_of_half_width_has_half_the_groups_of_the_same_width() -> None:
    made = SeResNeXt50(32, (64, 64), 8)
    inner = [m for m in made.body.modules() if isinstance(m, nn.Conv2d) and m.kernel_size[0] == 3]
    assert [conv.groups for conv in inner] == [16] * 16
    assert [conv.out_channels for conv in inner[::3]] == [64, 128, 128, 256, 256, 512]
    assert {conv.out_channels // conv.groups for conv in inner[:3]} == {4}
    plain = ResNet50(32, (64, 64), 8)
    assert {m.groups for m in plain.body.modules() if isinstance(m, nn.Conv2d)} == {1}
    assert {m.num_groups for m in plain.body.modules() if isinstance(m, nn.GroupNorm)} == {16}
    assert not any(isinstance(m, nn.BatchNorm2d) for m in (*made.modules(), *plain.modules()))


def test_an_image_is_first_averaged_over_two_by_two_pixels() -> None:
    made = ResNet50(4, (64, 64), 8)
    blocks = torch.rand(2, 32, 32)
    checks = torch.tensor([[0.1, -0.1], [-0.1, 0.1]]).repeat(32, 32)
    whole = blocks.repeat_interleave(2, 1).repeat_interleave(2, 2)
    torch.testing.assert_close(made(whole), made(whole + checks), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("width", [1, 6, 7])
def test_widths_that_are_not_multiples_of_a_groups_width_are_allowed(width: int) -> None:
    assert SeResNeXt50(width, (32, 32), 8)(torch.rand(2, 32, 32)).shape == (2, 8)


def batches() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [3.0 * torch.rand(n, 3, 4, 5) + n for n in (4, 1, 7)]


def fed(norm: ChannelNorm, *parts: torch.Tensor) -> ChannelNorm:
    for part in parts:
        norm.take(norm.sums(part).tolist())
    return norm


def test_moments_updated_batch_by_batch_equal_those_of_all_pixels() -> None:
    norm, seen = ChannelNorm(3), batches()
    fed(norm, *seen)
    variance, mean = torch.var_mean(torch.cat(seen), (0, 2, 3), correction=0)
    torch.testing.assert_close(norm.mean, mean)
    torch.testing.assert_close(norm.variance, variance)
    assert int(norm.pictures) == 12


def test_added_sums_of_ranks_equal_those_of_all_their_images() -> None:
    first, second, third = batches()
    norm, other = fed(ChannelNorm(3), first), fed(ChannelNorm(3), first)
    norm.take((norm.sums(second) + norm.sums(third)).tolist())
    fed(other, torch.cat([second, third]))
    torch.testing.assert_close(norm.state_dict(), other.state_dict())


def test_a_forward_pass_keeps_the_moments_and_is_the_identity_without_any() -> None:
    norm, (first, second, _) = ChannelNorm(3), batches()
    assert torch.equal(norm(first), first)
    fed(norm, first)
    before = {name: tensor.clone() for name, tensor in norm.state_dict().items()}
    shown = norm(second.clone().requires_grad_())
    shown.sum().backward()
    norm.take([0.0] * 7)
    assert all(torch.equal(norm.state_dict()[name], tensor) for name, tensor in before.items())
    again = norm(first)
    torch.testing.assert_close(again.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(again.std((0, 2, 3)), torch.ones(3), atol=0.01, rtol=0)


def test_moments_are_in_the_state_dict_and_survive_half_precision() -> None:
    norm, other = fed(ChannelNorm(3), *batches()), ChannelNorm(3)
    norm.pictures += 10_000_000
    state = norm.state_dict()
    half = {k: t.half() if t.is_floating_point() else t for k, t in state.items()}
    other.load_state_dict(half)
    assert int(other.pictures) == 10_000_012
    torch.testing.assert_close(other.mean, norm.mean, rtol=1e-3, atol=0)


def test_a_constant_channel_is_normalised_to_zero() -> None:
    norm, grey = ChannelNorm(3), torch.full((2, 3, 4, 4), 0.5)
    fed(norm, grey, grey)
    assert torch.equal(norm(grey), torch.zeros_like(grey))


def test_help_and_docs_name_every_encoder(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "pointnav", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    pages = [(DOCS / page).read_text() for page in ("add_an_encoder.md", "training.md")]
    for name in ENCODER_NAMES:
        assert name in shown
        assert all(f"`{name}`" in page for page in pages)
