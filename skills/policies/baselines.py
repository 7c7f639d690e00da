"""Conversion of policies of habitat-baselines to policies of tpsrl.

The network is that of `PointNavResNetPolicy`: ResNet-18 of the head depth, LSTM, independent
Gaussians and value. The inputs of its LSTM are the visual vector, the sensors in the order of their
names, and a 32-dimensional embedding of the previous action. Here one linear layer without
activation computes the latter two, with the same outputs.
"""

import dataclasses
import math
import re
from collections.abc import Mapping

import torch

from skills import registry
from skills.core.inputs import PolicyInputs
from skills.core.skill import Skill
from skills.policies.baselines_file import BaselinesFile
from skills.policies.deployed import Deployment
from tpsrl.errors import UserError, unknown
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.world.fetch import HEAD_CAMERA_FAR_M

# The benchmark's name of each sensor, and the signs of its entries: habitat-lab's angles are
# positive to the right.
SENSORS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "arm": ("joint", (1,) * 7),
    "ee": ("ee_pos", (1, 1, 1)),
    "holding": ("is_holding", (1,)),
    "to_rest": ("relative_resting_position", (1, 1, 1)),
    "goal_polar": ("goal_to_agent_gps_compass", (1, -1)),
    "start_from_ee": ("obj_start_sensor", (1, 1, 1)),
    "goal_from_ee": ("obj_goal_sensor", (1, 1, 1)),
    "start_polar": ("obj_start_gps_compass", (1, -1)),
    "target_polar": ("obj_goal_gps_compass", (1, -1)),
}
_STATE, _PREVIOUS = "trunk.embed.0.", "net.prev_action_embedding."
_MEANS, _DEVIATIONS = "action_distribution.mu_maybe_std.", "action_distribution.std"
# Patterns for the names of other weights, and their replacements.
_RENAMED = (
    (r"net\.visual_encoder\.backbone\.conv1\.", "trunk.encoder.body."),
    (r"net\.visual_encoder\.compression\.", "trunk.encoder.compress."),
    (r"net\.visual_fc\.1\.", "trunk.encoder.linear."),
    (r"net\.state_encoder\.rnn\.", "trunk.recurrent.lstm."),
    (r"critic\.fc\.", "value_head."),
)
_BLOCK = re.compile(r"net\.visual_encoder\.backbone\.layer([1-4])\.([01])\.(convs|downsample)\.")
_BRANCHES = {"convs": "branch", "downsample": "shortcut"}
_STEM, _BLOCKS = 4, 2  # modules before the first block; blocks in a stage
_VISUAL, _FIRST = "net.visual_fc.1.weight", "net.visual_encoder.backbone.conv1.0.weight"
_SQUEEZED = "net.visual_encoder.compression.0.weight"
_RECURRENT = "net.state_encoder.rnn.weight_hh_l"
_UNUSED = "aux_loss_modules."  # used in training only
_HALVED = 64  # downsampling factor from the picture to the last feature map
_SETTINGS = "habitat_baselines.rl.policy.main_agent.action_dist.action_activation"
_CAMERA = "habitat.simulator.agents.main_agent.sim_sensors.head_depth_sensor"


@dataclasses.dataclass(frozen=True, slots=True)
class Converted:
    """Converted policy, its deployment, and the names of weights that only training needs."""

    policy: ActorCritic
    deployment: Deployment
    left_out: tuple[str, ...]


def convert(file: BaselinesFile, skill: str) -> Converted:
    """Converts the policy of a checkpoint for a skill.

    Raises:
        UserError: the skill is not in the benchmark, the network is not a ResNet-18 or blind policy
            with an LSTM and Gaussian actions, or sensors or actions differ from the skill's; the
            message names the difference.
    """
    for name in (f"{_PREVIOUS}weight", f"{_MEANS}weight", f"{_RECURRENT}0"):
        if name not in file.weights:
            raise _refused(file, f"has another network: {name} is missing")
    if file.weights[f"{_PREVIOUS}weight"].dim() != 2 or f"{_PREVIOUS}bias" not in file.weights:
        raise _refused(file, "has discrete actions, must have Gaussian ones")
    task = _task(skill)
    inputs = PolicyInputs.of(skill, task.sensors, _picture(file))
    settings = _settings(file, inputs)
    mask = tuple(bool(part) for part in task.mask())
    _check_sizes(file, inputs, sum(mask))
    spec = EnvSpec(inputs.shapes(), mask, rays=inputs.rays, far=HEAD_CAMERA_FAR_M)
    policy = ActorCritic(spec, settings)
    state, left_out = _renamed(file)
    state |= _state_layer(file, inputs, mask) | _heads(file, mask)
    _put(file, policy, state)
    return Converted(policy.eval(), Deployment(inputs, delay=False), left_out)


def _task(skill: str) -> Skill:
    skills = {name: registry.get(name).definition for name in registry.names()}
    known = [name for name, task in skills.items() if {*task.sensors} <= SENSORS.keys()]
    if skill not in known:
        raise UserError(f"{unknown('skill', skill, known)}; must be a skill of the benchmark")
    return skills[skill]


def benchmark_sensors(inputs: PolicyInputs) -> tuple[str, ...]:
    """Returns a policy's sensors sorted by the benchmark's names, as in habitat-baselines."""
    return tuple(sorted(inputs.sensors, key=lambda name: SENSORS[name][0]))


def _picture(file: BaselinesFile) -> tuple[int, int] | None:
    """Returns (height, width) of the head depth, None for a blind policy.

    The size is that in the training's settings, or else derived from the last feature map.
    """
    if _VISUAL not in file.weights or _SQUEEZED not in file.weights:
        return None
    channels = file.weights[_FIRST].shape[1] if _FIRST in file.weights else 1
    if channels != 1:
        raise _refused(file, f"has images of {channels} channels, must have head depth only")
    pixels = file.weights[_VISUAL].shape[1] // len(file.weights[_SQUEEZED])
    side = _HALVED * math.isqrt(pixels)
    sides = [file.setting(f"{_CAMERA}.{name}", side) for name in ("height", "width")]
    return sides[0], sides[1]


def _settings(file: BaselinesFile, inputs: PolicyInputs) -> PolicySettings:
    weights = file.weights
    seen = inputs.depth is not None
    return PolicySettings(
        encoder="habitat_resnet18" if seen else "state",
        encoder_width=len(weights[_FIRST]) if seen and _FIRST in weights else 32,
        visual_width=len(weights[_VISUAL]) if seen else 512,
        state_width=inputs.size + len(weights[f"{_PREVIOUS}weight"]),
        activation="none",
        lstm_layers=sum(name.startswith(_RECURRENT) for name in weights),
        lstm_width=weights[f"{_RECURRENT}0"].shape[1],
        squash_mean=file.setting(_SETTINGS, "tanh") == "tanh",
        std="parameter" if _DEVIATIONS in weights else "network",
        min_std=math.exp(-5.0),  # both the defaults of habitat-baselines
        max_std=math.exp(2.0),
    )


def _check_sizes(file: BaselinesFile, inputs: PolicyInputs, actions: int) -> None:
    weights = file.weights
    gates, width = weights[f"{_RECURRENT}0"].shape
    if gates != 4 * width:
        raise _refused(file, "has a GRU, must have an LSTM (rl.ddppo.rnn_type)")
    embedded, given = weights[f"{_PREVIOUS}weight"].shape
    pictured = len(weights[_VISUAL]) if inputs.depth is not None else 0
    seen = weights["net.state_encoder.rnn.weight_ih_l0"].shape[1] - embedded - pictured
    if seen != inputs.size:
        names = ", ".join(SENSORS[name][0] for name in benchmark_sensors(inputs))
        raise _refused(
            file,
            f"observes {seen} numbers besides depth; {inputs.skill} has {inputs.size}: {names}",
        )
    if given != actions:
        raise _refused(file, f"has {given} actions, must have the {actions} of {inputs.skill}")


def _renamed(file: BaselinesFile) -> tuple[dict[str, torch.Tensor], tuple[str, ...]]:
    """Returns the weights that are copied, by new names, and the names of unused weights."""
    state, left_out = {}, []
    for name, tensor in file.weights.items():
        if name.startswith(_UNUSED):
            left_out.append(name)
        elif not name.startswith((_PREVIOUS, _MEANS, _DEVIATIONS)):
            state[_our_name(file, name)] = tensor
    return state, tuple(left_out)


def _our_name(file: BaselinesFile, name: str) -> str:
    if block := _BLOCK.match(name):
        stage, place, part = block.groups()
        number = _STEM + _BLOCKS * (int(stage) - 1) + int(place)
        return f"trunk.encoder.body.{number}.{_BRANCHES[part]}.{name[block.end() :]}"
    for pattern, ours in _RENAMED:
        if found := re.match(pattern, name):
            return ours + name[found.end() :]
    raise _refused(file, f"has another network: {name} is unknown")


def _state_layer(
    file: BaselinesFile, inputs: PolicyInputs, mask: tuple[bool, ...]
) -> dict[str, torch.Tensor]:
    """Returns the linear layer that permutes the sensors and embeds the previous action."""
    previous, bias = file.weights[f"{_PREVIOUS}weight"], file.weights[f"{_PREVIOUS}bias"]
    weight = torch.zeros(inputs.size + len(previous), inputs.size + len(mask))
    layout, row = inputs.layout(), 0
    for name in benchmark_sensors(inputs):
        for column, sign in enumerate(SENSORS[name][1], layout[name].start):
            weight[row, column] = sign
            row += 1
    weight[inputs.size :, [inputs.size + i for i, on in enumerate(mask) if on]] = previous
    shift = torch.cat((torch.zeros(inputs.size), bias))
    return {f"{_STATE}weight": weight, f"{_STATE}bias": shift}


def _heads(file: BaselinesFile, mask: tuple[bool, ...]) -> dict[str, torch.Tensor]:
    """Returns the weights of means and log standard deviations, zero for masked action parts."""
    weights, on = file.weights, torch.tensor(mask)
    parts = {kind: weights[f"{_MEANS}{kind}"] for kind in ("weight", "bias")}
    names = ["mean"] if _DEVIATIONS in weights else ["mean", "std"]
    if len(parts["weight"]) != sum(mask) * len(names):
        raise _refused(file, f"has {len(parts['weight'])} outputs for {sum(mask)} actions")
    state = {}
    for kind, both in parts.items():
        for name, rows in zip(names, both.chunk(len(names)), strict=True):
            whole = torch.zeros(len(mask), *rows.shape[1:])
            whole[on] = rows
            state[f"action_head.{name}.{kind}"] = whole
    if _DEVIATIONS in weights:
        state["action_head.log_std"] = torch.zeros(len(mask)).masked_scatter(
            on, weights[_DEVIATIONS]
        )
    return state


def _put(file: BaselinesFile, policy: ActorCritic, state: Mapping[str, torch.Tensor]) -> None:
    own = policy.state_dict()
    for name in sorted(own.keys() | state.keys()):
        if name not in own or name not in state or own[name].shape != state[name].shape:
            raise _refused(file, f"has another network: {name} does not fit")
        if not bool(torch.isfinite(state[name]).all()):
            raise _refused(file, f"is damaged: {name} is not finite")
    policy.load_state_dict(state)


def _refused(file: BaselinesFile, why: str) -> UserError:
    return UserError(f"checkpoint: {file.path} {why}")
