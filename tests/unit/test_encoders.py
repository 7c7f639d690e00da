import itertools

import pytest
import torch
from torch import nn

from tpsrl.errors import UserError
from tpsrl.rl.policy.encoder_registry import ENCODERS, make_encoder
from tpsrl.rl.policy.encoders import _space_to_depth
from tpsrl.rl.policy.settings import ENCODER_NAMES

IMAGE_ENCODERS = sorted(name for name, kind in ENCODERS.items() if kind is not None)
WIDTH, SIZE = 8, 24


def encoder(name: str, height: int = 64, width: int = 64, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    made = make_encoder(name, WIDTH, {"state": (3,), "depth": (height, width)}, SIZE)
    assert made is not None
    return made


def images(count: int, height: int = 64, width: int = 64, seed: int = 1) -> torch.Tensor:
    return torch.rand(count, height, width, generator=torch.Generator().manual_seed(seed))


def shaken(module: nn.Module) -> nn.Module:
    """Adds noise to all parameters in place, so that none keeps an initial value of zero."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return module


def test_the_settings_list_the_built_in_encoders() -> None:
    assert tuple(ENCODERS) == ENCODER_NAMES


@pytest.mark.parametrize("shape", [(32, 32), (64, 64), (128, 128), (48, 80), (33, 100)])
@pytest.mark.parametrize("name", IMAGE_ENCODERS)
def test_images_of_any_shape_are_encoded_as_distinct_vectors(
    name: str, shape: tuple[int, int]
) -> None:
    vectors = encoder(name, *shape)(images(3, *shape))
    assert vectors.shape == (3, SIZE)
    assert torch.all(torch.isfinite(vectors))
    assert torch.pdist(vectors).min() > 1e-4


@pytest.mark.parametrize("width", [1, 3, 5, 33])
@pytest.mark.parametrize("name", IMAGE_ENCODERS)
def test_an_odd_number_of_channels_is_allowed(name: str, width: int) -> None:
    made = make_encoder(name, width, {"state": (3,), "depth": (32, 32)}, SIZE)
    assert made is not None and made(images(2, 32, 32)).shape == (2, SIZE)


@pytest.mark.parametrize("width", [2, 8, 10, 32])
def test_an_even_number_of_channels_is_normalised_in_half_as_many_groups(width: int) -> None:
    made = make_encoder("resnet18", width, {"state": (3,), "depth": (32, 32)}, SIZE)
    assert made is not None
    norms = [module for module in made.modules() if isinstance(module, nn.GroupNorm)]
    assert {norm.num_groups for norm in norms} == {width // 2}


@pytest.mark.parametrize("shape", [(64, 64), (33, 100)])
@pytest.mark.parametrize("name", IMAGE_ENCODERS)
def test_every_corner_of_an_image_affects_the_output(name: str, shape: tuple[int, int]) -> None:
    image = images(1, *shape).requires_grad_()
    shaken(encoder(name, *shape))(image).sum().backward()
    assert image.grad is not None
    # The Nature DQN's convolutions cover the middle 60 of 64 pixels, and all of the other sides.
    edge = 2 if name == "nature_cnn" and shape == (64, 64) else 0
    looked_at = image.grad[0, edge : shape[0] - edge, edge : shape[1] - edge]
    assert torch.all(looked_at[[0, 0, -1, -1], [0, -1, 0, -1]] != 0)


@pytest.mark.parametrize("name", IMAGE_ENCODERS)
def test_a_row_does_not_depend_on_the_rest_of_the_batch(name: str) -> None:
    model = shaken(encoder(name)).train()
    batch = images(9)
    whole = model(batch)
    for row in (0, 8):
        torch.testing.assert_close(model(batch[row : row + 1])[0], whole[row], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("side", [36, 64, 68])
@pytest.mark.parametrize("count", [1, 2, 4, 9])
def test_the_fast_paths_of_the_nature_cnn_equal_its_layers(count: int, side: int) -> None:
    model = shaken(encoder("nature_cnn", side, side))
    depth = images(count, side, side)

    def plain() -> torch.Tensor:
        edge = 2 if side == 64 else 0  # The convolutions cover 60 of 64 pixels.
        middle = depth[:, edge : side - edge, edge : side - edge]
        flat = model.body(middle.unsqueeze(1)).flatten(1)
        return torch.relu(model.linear(flat))

    def gradients(out: torch.Tensor) -> list[torch.Tensor]:
        return list(torch.autograd.grad(out.square().sum(), list(model.parameters())))

    whole = plain()
    torch.testing.assert_close(model(depth), whole, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients(model(depth)), gradients(plain()), rtol=1e-3, atol=1e-3)
    with torch.inference_mode():
        torch.testing.assert_close(model(depth), whole.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", IMAGE_ENCODERS)
def test_every_parameter_receives_a_gradient(name: str) -> None:
    model = shaken(encoder(name, 128, 128, seed=1))
    model(images(8, 128, 128)).square().sum().backward()
    without = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert without == []


@pytest.mark.parametrize("name", IMAGE_ENCODERS)
def test_every_parameter_receives_a_gradient_after_one_step_from_initialisation(name: str) -> None:
    model = encoder(name)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        model(images(8)).square().sum().backward()
        optimizer.step()
    without = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert without == []


def test_blocks_without_normalisation_initially_equal_their_shortcut() -> None:
    model = encoder("se_resnet9")
    first = model.body[0]
    x = torch.rand(2, WIDTH, 16, 16)
    assert torch.equal(first(x), x)
    second = model.body[1]
    assert torch.equal(second(x), torch.relu(second.shortcut(x)))


def test_without_normalisation_activations_neither_explode_nor_vanish_with_depth() -> None:
    model = encoder("se_resnet9")
    x = torch.relu(torch.randn(32, WIDTH, 16, 16))
    powers = [x.square().mean()]
    for block in model.body:
        x = block(x)
        powers.append(x.square().mean())
    assert max(powers) < 4 * min(powers)


def test_the_first_layer_of_a_branch_is_initialised_by_fixup() -> None:
    torch.manual_seed(0)
    model = make_encoder("se_resnet9", 64, {"depth": (64, 64)}, SIZE)
    assert model is not None
    for block in model.body:
        weight = block.conv1.weight
        he = (2 / (weight.shape[1] * 9)) ** 0.5
        # Four branches of two layers each: 4^(-1 / (2 * 2 - 2)) = 1 / 2.
        assert weight.std().item() == pytest.approx(he / 2, rel=0.05)
        assert not block.conv2.weight.any()


def test_the_stem_moves_blocks_of_pixels_into_channels() -> None:
    image = images(2, 32, 64)
    found = _space_to_depth(image)
    assert found.shape == (2, 16, 8, 16)
    for row, column in itertools.product(range(32), range(64)):
        channel, place = 4 * (row % 4) + column % 4, (row // 4, column // 4)
        assert torch.equal(found[:, channel, *place], image[:, row, column])


def test_fixups_scalars_start_as_in_the_paper() -> None:
    """Multipliers at one and biases at zero (Zhang et al. 2019, section 3)."""
    for block in encoder("se_resnet9").body:
        assert float(block.scale.detach()) == 1.0
        assert not block.conv1.bias.any() and not block.conv2.bias.any()


def test_residual_branches_with_normalisation_start_small() -> None:
    model = encoder("resnet18")
    block = next(m for m in model.body if hasattr(m, "norm2"))
    x = torch.relu(torch.randn(4, WIDTH, 16, 16))
    change = (block.norm2(block.conv2(block.norm1(block.conv1(x))))).std()
    assert 0.05 < change < 0.2


@pytest.mark.parametrize(("side", "dilations"), [(128, [2] * 8), (64, [2] * 6 + [1] * 2)])
def test_convolutions_are_dilated_unless_the_feature_map_is_too_small(
    side: int, dilations: list[int]
) -> None:
    model = encoder("resnet18", side, side)
    found = [c.dilation[0] for n, c in model.named_modules() if n.endswith("conv2")]
    assert found == dilations


@pytest.mark.parametrize("name", ["resnet18", "se_resnet9"])
def test_a_large_feature_map_is_compressed_before_the_linear_layer(name: str) -> None:
    model = make_encoder(name, 32, {"depth": (128, 128)}, SIZE)
    assert model is not None
    assert model.head.linear.in_features == 2048
    small = make_encoder(name, 32, {"depth": (64, 64)}, SIZE)
    assert small is not None
    assert small.head.linear.in_features == 256 * 2 * 2


@pytest.mark.parametrize(("side", "left"), [(32, 1), (36, 1), (37, 1), (64, 4), (84, 7)])
def test_the_final_map_of_the_nature_cnn_has_the_expected_size(side: int, left: int) -> None:
    model = make_encoder("nature_cnn", 32, {"depth": (side, side)}, SIZE)
    assert model is not None
    assert model.linear.in_features == 64 * left * left


def test_the_encoder_state_is_none_with_or_without_a_camera() -> None:
    assert make_encoder("state", WIDTH, {"state": (3,)}, SIZE) is None
    assert make_encoder("state", WIDTH, {"state": (3,), "depth": (64, 64)}, SIZE) is None


def test_an_unknown_encoder_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"encoder: .*'resnet81'.*did you mean 'resnet18'"):
        make_encoder("resnet81", WIDTH, {"depth": (64, 64)}, SIZE)


@pytest.mark.parametrize("name", IMAGE_ENCODERS)
def test_an_encoder_of_images_without_a_camera_is_an_error(name: str) -> None:
    with pytest.raises(UserError, match=f"encoder: '{name}' needs a depth image.*'state'"):
        make_encoder(name, WIDTH, {"state": (3,)}, SIZE)


@pytest.mark.parametrize("shape", [(31, 64), (64, 16)])
def test_an_image_that_is_too_small_is_an_error(shape: tuple[int, int]) -> None:
    with pytest.raises(UserError, match=r"depth: .* is too small, must be at least 32 x 32"):
        make_encoder("resnet18", WIDTH, {"depth": shape}, SIZE)
