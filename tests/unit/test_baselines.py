"""Conversion of habitat-baselines checkpoints, tested against a copy of its network."""

import collections
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch import nn
from torch.nn import functional

from skills.policies import baselines, baselines_file, learned
from tpsrl import cli
from tpsrl.errors import UserError

# For each of the benchmark's tasks: sizes of the observations other than depth, sorted by name, and
# the size of the action.
TASKS = {
    "navigate": ({"goal_to_agent_gps_compass": 2, "joint": 7}, 3),
    "pick": (
        {"is_holding": 1, "joint": 7, "obj_start_sensor": 3, "relative_resting_position": 3},
        10,
    ),
    "close_drawer": (
        {"ee_pos": 3, "is_holding": 1, "joint": 7, "relative_resting_position": 3},
        10,
    ),
}
WIDTH, HIDDEN, EMBEDDED = 4, 16, 32


class Block(nn.Module):
    def __init__(self, before: int, planes: int, stride: int) -> None:
        super().__init__()
        groups = WIDTH // 2
        self.convs = nn.Sequential(
            nn.Conv2d(before, planes, 3, stride, 1, bias=False),
            nn.GroupNorm(groups, planes),
            nn.ReLU(),
            nn.Conv2d(planes, planes, 3, 1, 1, bias=False),
            nn.GroupNorm(groups, planes),
        )
        self.downsample = (
            nn.Sequential(
                nn.Conv2d(before, planes, 1, stride, bias=False), nn.GroupNorm(groups, planes)
            )
            if stride > 1
            else None
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        beside = x if self.downsample is None else self.downsample(x)
        return torch.relu(self.convs(x) + beside)


class Policy(nn.Module):
    """Network whose modules are named as in habitat-baselines' `PointNavResNetPolicy`."""

    def __init__(self, sensors: int, actions: int, side: int = 0, std_param: bool = True) -> None:
        super().__init__()
        self.net = net = nn.Module()
        if side:
            self._add_vision(net, side)
        net.prev_action_embedding = nn.Linear(actions, EMBEDDED)
        inputs = (HIDDEN if side else 0) + sensors + EMBEDDED
        net.state_encoder = nn.Module()
        net.state_encoder.rnn = nn.LSTM(inputs, HIDDEN, 2)
        self.action_distribution = nn.Module()
        outputs = actions if std_param else 2 * actions
        self.action_distribution.mu_maybe_std = nn.Linear(HIDDEN, outputs)
        if std_param:
            self.action_distribution.std = nn.Parameter(torch.randn(actions))
        self.critic = nn.Module()
        self.critic.fc = nn.Linear(HIDDEN, 1)

    def _add_vision(self, net: nn.Module, side: int) -> None:
        backbone = nn.Module()
        backbone.conv1 = nn.Sequential(
            nn.Conv2d(1, WIDTH, 7, 2, 3, bias=False), nn.GroupNorm(WIDTH // 2, WIDTH), nn.ReLU()
        )
        for stage in range(4):
            planes = WIDTH << stage
            before = planes if stage == 0 else planes // 2
            blocks = [Block(before, planes, 2 if stage else 1), Block(planes, planes, 1)]
            setattr(backbone, f"layer{stage + 1}", nn.Sequential(*blocks))
        pixels = (side // 64) ** 2
        channels = round(2048 / pixels)
        net.visual_encoder = nn.Module()
        net.visual_encoder.backbone = backbone
        net.visual_encoder.compression = nn.Sequential(
            nn.Conv2d(8 * WIDTH, channels, 3, 1, 1, bias=False), nn.GroupNorm(1, channels)
        )
        net.visual_fc = nn.Sequential(nn.Flatten(), nn.Linear(channels * pixels, HIDDEN))

    def forward(
        self,
        seen: dict[str, torch.Tensor],
        previous: torch.Tensor,
        memory: tuple[torch.Tensor, torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """Returns mean, standard deviation, value and memory.

        `seen` maps the benchmark's sensor names to observations.
        """
        net: Any = self.net
        parts = [seen[name] for name in sorted(seen) if name != "head_depth"]
        if "head_depth" in seen:
            x = functional.avg_pool2d(seen["head_depth"][:, None], 2)
            backbone = net.visual_encoder.backbone
            x = functional.max_pool2d(backbone.conv1(x), 3, 2, 1)
            for stage in range(1, 5):
                x = getattr(backbone, f"layer{stage}")(x)
            x = torch.relu(net.visual_encoder.compression(x))
            parts.insert(0, torch.relu(net.visual_fc(x)))
        parts.append(net.prev_action_embedding(previous))
        out, memory = net.state_encoder.rnn(torch.cat(parts, 1)[None], memory)
        head: Any = self.action_distribution
        mean = head.mu_maybe_std(out[0])
        if hasattr(head, "std"):
            log_std = head.std.expand_as(mean)
        else:
            mean, log_std = mean.chunk(2, 1)
        deviation = log_std.clamp(-5, 2).exp()
        return torch.tanh(mean), deviation, self.critic.fc(out[0])[:, 0], memory


def made(skill: str, side: int = 0, std_param: bool = True) -> Policy:
    torch.manual_seed(0)
    sensors, actions = TASKS[skill]
    return Policy(sum(sensors.values()), actions, side, std_param).eval()


def saved(folder: Path, weights: dict[str, torch.Tensor], **more: Any) -> Path:
    path = folder / "ckpt.3.pth"
    torch.save({"state_dict": weights, **more}, path)
    return path


@pytest.mark.parametrize("skill", TASKS)
@pytest.mark.parametrize(
    ("side", "std_param"), [(0, True), (64, False), pytest.param(128, True, marks=pytest.mark.slow)]
)
def test_a_converted_policy_has_the_outputs_of_the_original_over_episodes(
    tmp_path: Path, skill: str, side: int, std_param: bool
) -> None:
    theirs = made(skill, side, std_param)
    file = baselines_file.read(saved(tmp_path, theirs.state_dict()))
    converted = baselines.convert(file, skill)
    ours, inputs = converted.policy, converted.deployment.inputs
    assert inputs.depth == ((side, side) if side else None) and converted.left_out == ()
    sensors, _ = TASKS[skill]
    on = torch.tensor(ours.spec.mask)
    memory, mine = (torch.zeros(2, 3, HIDDEN),) * 2, ours.initial_memory(3)
    previous, first = torch.zeros(3, len(on)), torch.ones(3, dtype=torch.bool)
    for step in range(4):
        seen = {name: torch.randn(3, size) for name, size in sensors.items()}
        vector = [seen[baselines.SENSORS[name][0]].clone() for name in inputs.sensors]
        if skill == "navigate":  # habitat-lab's angle to the goal is positive to the right
            vector[0][:, 1] *= -1
        shown = {"state": torch.cat(vector, 1)}
        if side:
            seen["head_depth"] = shown["depth"] = torch.rand(3, side, side)
        with torch.no_grad():
            mean, std, value, memory = theirs(seen, previous[:, on], memory)
            given = ours.act(shown, previous, mine, first)
        mine = given.memory
        torch.testing.assert_close(given.mean[:, on], mean, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(given.std[:, on], std, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(given.value, value, rtol=1e-4, atol=1e-5)
        assert (given.mean[:, ~on] == 0).all()
        previous = torch.where(on, torch.randn(3, len(on)), 0.0)
        first = torch.tensor([False, step == 1, False])  # an episode ends in the second environment
        previous = torch.where(first[:, None], 0.0, previous)
        memory = tuple(torch.where(first[None, :, None], 0.0, part) for part in memory)


def test_the_command_writes_a_loadable_policy_and_lists_omitted_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = made("pick", 64).state_dict()
    weights |= {"aux_loss_modules.cpca.weight": torch.zeros(3)}
    camera = {"agents": {"main_agent": {"sim_sensors": {"head_depth_sensor": {"width": 60}}}}}
    settings = OmegaConf.create({"habitat": {"simulator": camera}})
    path = saved(tmp_path, weights, config=settings, extra_state={"step": 7_000_000})
    out = tmp_path / "out"
    assert cli.main(["convert", "pick", f"checkpoint={path}", f"out={out}"]) == 0
    printed = capsys.readouterr().out
    assert "64 x 60 head depth, 7,000,000 steps" in printed
    assert "left out, used in training only: aux_loss_modules.cpca.weight" in printed
    network = learned.load("pick", out)
    assert network.steps == 7_000_000 and network.sample and network.inputs.depth == (64, 60)
    assert cli.main(["convert", "pick", f"checkpoint={path}", f"out={out}"]) == 2
    assert "exists; choose another folder, or set replace=true" in capsys.readouterr().err


def test_the_prefix_of_weights_of_older_versions_is_removed(tmp_path: Path) -> None:
    weights = made("pick").state_dict()
    path = saved(tmp_path, {f"actor_critic.{name}": value for name, value in weights.items()})
    assert baselines_file.read(path).weights.keys() == weights.keys()


def test_no_code_of_a_checkpoint_is_executed(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    weights = made("pick").state_dict()
    path = saved(tmp_path, weights, config=Trap(), optim_state=collections.deque([Trap()]))
    assert baselines_file.read(path).weights.keys() == weights.keys()
    torch.save({"state_dict": Trap()}, path)
    with pytest.raises(UserError, match="no 'state_dict'"):
        baselines_file.read(path)
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(UserError, match="is not a checkpoint of habitat-baselines"):
        baselines_file.read(path)
    assert not (tmp_path / "sprung").exists()


def without(weights: dict[str, torch.Tensor], name: str) -> dict[str, torch.Tensor]:
    return {key: value for key, value in weights.items() if not key.startswith(name)}


def changed(name: str, tensor: torch.Tensor | None) -> dict[str, torch.Tensor]:
    weights = made("pick", 64).state_dict()
    return without(weights, name) if tensor is None else weights | {name: tensor}


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("critic.fc.bias", torch.tensor([torch.nan]), "is damaged: value_head.bias is not finite"),
        ("critic.fc", None, "has another network: value_head.bias does not fit"),
        ("net.tgt_embeding.weight", torch.zeros(32, 3), "net.tgt_embeding.weight is unknown"),
        ("net.prev_action_embedding.bias", None, "has discrete actions, must have Gaussian ones"),
        (
            "net.state_encoder.rnn.weight_hh_l0",
            torch.zeros(3 * HIDDEN, HIDDEN),
            "has a GRU, must have an LSTM (rl.ddppo.rnn_type)",
        ),
        (
            "net.visual_encoder.backbone.conv1.0.weight",
            torch.zeros(WIDTH, 4, 7, 7),
            "has images of 4 channels, must have head depth only",
        ),
        (
            "net.prev_action_embedding.weight",
            torch.zeros(EMBEDDED, 11),
            "has 11 actions, must have the 10 of pick",
        ),
        (
            "action_distribution.mu_maybe_std.weight",
            torch.zeros(12, HIDDEN),
            "has 12 outputs for 10 actions",
        ),
        ("net.visual_encoder.backbone.layer3.2.convs.0.weight", torch.zeros(1), "layer3.2.convs"),
    ],
)
def test_a_network_without_counterpart_is_refused(
    tmp_path: Path, name: str, tensor: torch.Tensor | None, message: str
) -> None:
    file = baselines_file.read(saved(tmp_path, changed(name, tensor)))
    with pytest.raises(UserError) as refused:
        baselines.convert(file, "pick")
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_sensors_of_another_skill_are_refused_with_the_expected_ones(tmp_path: Path) -> None:
    file = baselines_file.read(saved(tmp_path, made("navigate").state_dict()))
    with pytest.raises(
        UserError, match="observes 9 numbers besides depth; pick has 14: is_holding"
    ):
        baselines.convert(file, "pick")


def test_a_skill_that_habitat_baselines_does_not_have_is_refused(tmp_path: Path) -> None:
    file = baselines_file.read(saved(tmp_path, made("pick").state_dict()))
    with pytest.raises(UserError, match=r"pointnav.*must be a skill of the benchmark"):
        baselines.convert(file, "pointnav")
