"""Encoders of several pictures: what is stacked, what is normalised, and by what."""

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import nn

from tpsrl.errors import UserError
from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.distributed.group import Alone
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.learning.observed import follow
from tpsrl.rl.policy import encoder_registry
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.policy.encoder_registry import ENCODERS
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.rl.policy.towers import Tower, Towers
from tpsrl.rl.run import checkpoint as checkpoints
from tpsrl.rl.run import halving

SMALL = PolicySettings(
    "se_resnet9", encoder_width=4, visual_width=6, state_width=8, lstm_layers=1, lstm_width=8
)
SHAPES = {
    "state": (3,),
    "depth": (32, 32),
    "head_rgb": (32, 32, 3),
    "head_semantic": (32, 32),
    "head_instance": (32, 32),
    "hand_depth": (40, 36),
}
SPEC = EnvSpec(SHAPES, (True, True, False), far=10.0, classes=4)


def seen(count: int, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, torch.Tensor] = {}
    for name, shape in SHAPES.items():
        most = {"head_rgb": 256, "head_semantic": 4, "head_instance": 256}.get(name)
        found[name] = (
            torch.rand(count, *shape, generator=generator)
            if most is None
            else torch.randint(0, most, (count, *shape), generator=generator, dtype=torch.uint8)
        )
    return found


def policy(spec: EnvSpec = SPEC, settings: PolicySettings = SMALL) -> ActorCritic:
    torch.manual_seed(0)
    return ActorCritic(spec, settings)


def acted(made: ActorCritic, shown: dict[str, torch.Tensor]) -> torch.Tensor:
    count = len(shown["state"])
    first = torch.ones(count, dtype=torch.bool)
    with torch.inference_mode():
        return made.act(shown, torch.zeros(count, 3), made.initial_memory(count), first).mean


def test_pictures_of_one_size_are_the_channels_of_one_tower() -> None:
    made = policy().trunk.encoder
    assert isinstance(made, Towers)
    assert [tower.names for tower in made.towers] == [
        ("depth", "head_rgb", "head_semantic", "head_instance"),
        ("hand_depth",),
    ]
    first, shown = made.towers[0], seen(2)
    channels = first.channels(shown)
    assert channels.shape == (2, 1 + 3 + 3 + 3, 32, 32)
    assert torch.equal(channels[:, 0], shown["depth"])
    torch.testing.assert_close(channels[:, 2], shown["head_rgb"][..., 1] / 255.0)
    for number in (1, 2, 3):
        assert torch.equal(channels[:, 3 + number], (shown["head_semantic"] == number).float())
    numbered = torch.cat([shown["head_instance"].unsqueeze(1).float(), channels[:, 7:]], dim=1)
    pixels = numbered.movedim(1, 3).reshape(-1, 4).unique(dim=0)
    assert pixels.shape == (256, 4) and len(pixels[:, 1:].unique(dim=0)) == 256
    assert not pixels[0].any() and bool(((pixels[:, 1:] >= 0.0) & (pixels[:, 1:] <= 1.0)).all())
    assert made(shown).shape == (2, 12) and policy().trunk.vision_size == 12


@pytest.mark.parametrize("name", sorted(name for name in ENCODERS if name != "state"))
def test_every_encoder_encodes_each_image_independently(name: str) -> None:
    torch.manual_seed(0)
    tower = Tower(name, 4, ("depth", "head_rgb", "head_semantic"), SPEC, 5).eval()
    shown = seen(5)
    tower.norm.take(tower.sums(shown).tolist())
    with torch.no_grad():
        vectors, fewer = tower(shown), tower({n: t[:2] for n, t in shown.items()})
    assert vectors.shape == (5, 5) and bool(torch.isfinite(vectors).all())
    torch.testing.assert_close(vectors[:2], fewer, rtol=1e-3, atol=1e-4)
    assert torch.pdist(vectors).min() > 1e-5


@pytest.mark.parametrize(
    "name", ["head_rgb", "head_semantic", "head_instance", "hand_depth", "depth"]
)
def test_actions_depend_on_every_picture(name: str) -> None:
    made, shown = policy(), seen(1)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    other = {**shown, name: torch.zeros_like(shown[name])}
    assert not torch.equal(acted(made, shown), acted(made, other))


def test_a_policy_with_head_depth_alone_has_no_tower() -> None:
    plain = EnvSpec({"state": (3,), "depth": (32, 32)}, SPEC.mask)
    made = policy(plain)
    assert not isinstance(made.trunk.encoder, Towers) and made.towers() == []
    assert not any("norm" in name for name, _ in made.named_buffers())
    (tower,) = policy(EnvSpec({"state": (3,), "hand_depth": (32, 32)}, SPEC.mask)).towers()
    assert tower[0].names == ("hand_depth",)


def test_sight_shortens_the_depth_of_every_camera() -> None:
    made, shown = policy(settings=dataclasses.replace(SMALL, sight=5.0)), seen(2)
    near = {n: t.clamp(max=0.5) if n.endswith("depth") else t for n, t in shown.items()}
    assert torch.equal(acted(made, shown), acted(made, near))


class Two(Alone):
    """A rank whose equal has seen the same."""

    size = 2

    def totals(self, values):  # type: ignore[no-untyped-def]
        return [2.0 * value for value in values]


def filled(spec: EnvSpec, shown: dict[str, torch.Tensor]) -> Rollout:
    count = len(shown["state"])
    rollout = Rollout(spec, count, count, 0)
    rollout.begin()
    for name, values in shown.items():
        rollout.observation[name][:count] = values
    rollout._rows, rollout.num_fresh = torch.arange(count).numpy(), count
    return rollout


def test_channel_statistics_are_shared_by_all_ranks_in_both_trunks() -> None:
    made, shown = policy(settings=dataclasses.replace(SMALL, separate_value=True)), seen(5)
    rollout = filled(SPEC, shown)
    assert rollout.observation["head_rgb"].dtype == torch.uint8
    follow(made, rollout, Two())
    for towers in made.towers():
        assert len(towers) == 2
        variance, mean = torch.var_mean(towers[0].channels(shown), (0, 2, 3), correction=0)
        for tower in towers:
            assert int(tower.norm.pictures) == 10
            torch.testing.assert_close(tower.norm.mean, mean)
            torch.testing.assert_close(tower.norm.variance, variance)


def test_a_frozen_encoder_keeps_its_moments() -> None:
    made = policy(settings=dataclasses.replace(SMALL, frozen_encoder=True))
    follow(made, filled(SPEC, seen(3)), Alone())
    assert isinstance(made.trunk.encoder, Towers)
    assert int(made.trunk.encoder.towers[0].norm.pictures) == 0


def test_a_checkpoint_holds_all_that_a_policy_with_cameras_acts_by(tmp_path: Path) -> None:
    made, shown = policy().eval(), seen(3)
    follow(made, filled(SPEC, shown), Alone())
    tensors, note = checkpoints.policy_part(made)
    assert note["spec"]["classes"] == 4
    checkpoints.save(tmp_path / "one.safetensors", tensors, note)
    found = checkpoints.load(tmp_path / "one.safetensors")
    assert torch.equal(acted(checkpoints.load_policy(found), shown), acted(made, shown))
    small, _ = halving.halved(found)
    assert halving.is_half(small)
    assert halving.difference(made, checkpoints.load_policy(found), rows=2, steps=2) == 0.0


def test_the_note_of_a_policy_without_classes_is_as_before() -> None:
    plain = EnvSpec({"state": (3,), "depth": (32, 32)}, SPEC.mask)
    _, note = checkpoints.policy_part(policy(plain))
    assert set(note["spec"]) == {"observations", "mask", "rays", "far"}


def test_classes_have_to_be_counted() -> None:
    with pytest.raises(UserError, match=r"^head_semantic: .* the number of classes"):
        policy(dataclasses.replace(SPEC, classes=0))


def test_a_custom_encoder_without_channels_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Flat(nn.Module):
        def __init__(self, width: int, shape: tuple[int, int], size: int) -> None:
            super().__init__()
            height, across = shape
            self.linear = nn.Linear(height * across, size)

        def forward(self, depth: torch.Tensor) -> torch.Tensor:
            return self.linear(depth.flatten(1))  # type: ignore[no-any-return]

    monkeypatch.setitem(encoder_registry._registered, "flat", Flat)
    with pytest.raises(UserError, match=r"^encoder flat: .*10 channels.*cameras=head_depth:32$"):
        policy(settings=dataclasses.replace(SMALL, encoder="flat"))
