"""The trained policy: encoders, LSTM, independent Gaussians and value in one network."""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from tpsrl.errors import UserError
from tpsrl.rl.envs.pictures import DEPTH, kind_of, pictures_of
from tpsrl.rl.envs.vec_env import MAP, EnvSpec
from tpsrl.rl.policy import gaussian, glimpse
from tpsrl.rl.policy.encoder_registry import check_encoder, make_encoder
from tpsrl.rl.policy.moments import RunningMoments
from tpsrl.rl.policy.recurrent import Pack, Recurrent
from tpsrl.rl.policy.settings import TIMM, PolicySettings
from tpsrl.rl.policy.small_cnn import GLIMPSE_STAGES, SmallCnn
from tpsrl.rl.policy.towers import ONLY_DEPTH, Tower, Towers

TensorObservation = Mapping[str, torch.Tensor]
VALUE_PARTS = (
    "value_trunk.",
    "value_head.",
    "critic.",
)  # prefixes of parameters that only the value uses

CRITIC = "critic"  # observation (n, c) of the true state, input of the critic
VISION = "vision"  # observation (n, V) in rollouts: output of frozen encoders, instead of images
_CRITIC_WIDTH, _CRITIC_LAYERS = 256, 2
_ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "selu": nn.SELU}
_RULED_STD = 0.01  # of a switch that is set by a rule to 1 or -1
MAGNIFIED = (4.0, 20.0)  # factors of the state before tanh


@dataclasses.dataclass(frozen=True, slots=True)
class PolicyStep:
    """Outputs of a policy for n rows, float32.

    `mean` is zero where an action is masked. `memory` is None for whole sequences. `vision` is None
    without an encoder, and for single steps unless the encoder is frozen.
    """

    mean: torch.Tensor  # (n, A)
    std: torch.Tensor  # (n, A)
    value: torch.Tensor  # (n,)
    memory: torch.Tensor | None  # (n, M)
    features: torch.Tensor  # (n, F), input of the action head
    vision: torch.Tensor | None = None  # (n, V), output of the encoder


class ActorCritic(nn.Module):
    """A policy for environments with one specification.

    Raises:
        UserError: the encoder is unknown or needs a depth image that is not observed, the bounds of
            the standard deviation are in the wrong order, or there is to be a critic but the true
            state is not among the observations.

    Attributes:
        moments: `RunningMoments` of normalised vectors, by name of the observation; empty if none
            are normalised
    """

    mask: torch.Tensor  # (A,) bool
    switches: torch.Tensor  # (A,) bool, dimensions of which only the sign matters
    amounts: torch.Tensor  # (A,) bool, the other unmasked dimensions

    def __init__(self, spec: EnvSpec, settings: PolicySettings) -> None:
        super().__init__()
        if settings.glimpse:
            glimpse.check(spec, settings.glimpse)
            if settings.frozen_encoder or settings.encoder == "state":
                raise UserError("glimpse: needs an encoder that learns; nearest: 0")
        if settings.grip_rule and not any(spec.grip_rule):
            raise UserError("grip_rule: needs the sensor grip_rule; nearest: false")
        self.spec, self.settings = spec, settings
        self.trunk = Trunk(spec, settings)
        self.value_trunk = Trunk(spec, settings) if settings.separate_value else None
        # The encoder "state" uses no images.
        self._pictures = pictures_of(spec.observations) if settings.encoder != "state" else ()
        self._caches = settings.frozen_encoder and self.trunk.encoder is not None
        self._vision_sizes = [trunk.vision_size for trunk in self._trunks()]
        self._memory_sizes = [trunk.memory_size for trunk in self._trunks()]
        self.memory_size = sum(self._memory_sizes)
        self.action_head = GaussianHead(self.trunk.size, spec, settings)
        self.critic = _critic(spec, settings) if settings.critic else None
        value_size = self.trunk.size if self.critic is None else _CRITIC_WIDTH
        self.value_head = _linear(value_size, 1, 1.0)
        self.moments = nn.ModuleDict()
        if settings.normalise_observations:
            for name in ("state", CRITIC) if settings.critic else ("state",):
                self.moments[name] = RunningMoments(spec.observations[name][0])
        self.register_buffer("mask", torch.tensor(spec.mask), persistent=False)
        switches = torch.zeros_like(self.mask)
        if settings.switches:
            switches[list(spec.switches)] = True
        self.register_buffer("switches", self.mask & switches, persistent=False)
        self.register_buffer("amounts", self.mask & ~switches, persistent=False)
        self._has_switches = settings.switches and any(spec.mask[i] for i in spec.switches)

    @property
    def rollout_spec(self) -> EnvSpec:
        """Specification of the observations that a rollout keeps.

        With a frozen encoder, these have its output `VISION` instead of the images, which are then
        encoded once, for acting.
        """
        if not self._caches:
            return self.spec
        shapes = self.spec.observations
        kept = {name: shape for name, shape in shapes.items() if name not in self._pictures}
        kept[VISION] = (sum(self._vision_sizes),)
        return dataclasses.replace(self.spec, observations=kept)

    def initial_memory(self, count: int) -> torch.Tensor:
        """Returns the memory (count, M) at the start of an episode."""
        return torch.zeros(count, self.memory_size, device=self.mask.device)

    def act(
        self,
        observation: TensorObservation,
        previous_action: torch.Tensor,
        memory: torch.Tensor,
        is_first: torch.Tensor,
    ) -> PolicyStep:
        """Acts for one step in n environments.

        Previous actions (n, A) and memories (n, M) count as zero where `is_first` (n,) bool is
        true. Use `torch.inference_mode` around the call if no gradient is needed.
        """
        first = is_first[:, None]
        inputs = self._inputs(observation, previous_action.masked_fill(first, 0.0))
        parts = memory.masked_fill(first, 0.0).split(self._memory_sizes, dim=1)
        with self._autocast():
            seen = self._seen(inputs)
            outputs = [
                trunk.step(of_trunk, part)
                for trunk, of_trunk, part in zip(self._trunks(), seen, parts, strict=True)
            ]
        features, memories = zip(*outputs, strict=True)
        cached = [each.vision for each in seen if each.vision is not None]
        vision = torch.cat(cached, dim=1).float() if cached else None
        return self._step(observation, features, torch.cat(memories, dim=1).float(), vision)

    def evaluate(
        self, observation: TensorObservation, previous_action: torch.Tensor, pack: Pack
    ) -> PolicyStep:
        """Evaluates whole sequences: S rows in packed order.

        A sequence must not continue past the end of an episode. For a sequence that begins an
        episode, previous action and memory must be zero. `VISION`, if observed, is used instead of
        images.
        """
        inputs = self._inputs(observation, previous_action)
        parts = pack.memory.split(self._memory_sizes, dim=1)
        with self._autocast():
            outputs = [
                trunk(of_trunk, Pack(pack.batch_sizes, part))
                for trunk, of_trunk, part in zip(
                    self._trunks(), self._seen(inputs), parts, strict=True
                )
            ]
        features, vision = zip(*outputs, strict=True)
        return self._step(observation, features, None, vision[0])

    def log_prob(
        self,
        mean: torch.Tensor,
        std: torch.Tensor,
        action: torch.Tensor,
        noise: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Returns the log probability (n,) of actions (n, A).

        `noise` (n, A), if known, is the distance of the actions from the mean in standard
        deviations.
        """
        if noise is None:
            found = gaussian.log_prob(mean, std, action, self.amounts)
        else:
            found = gaussian.log_prob_of(std, self.amounts, noise)
        if self._has_switches:
            found = found + gaussian.switch_log_prob(mean, std, action, self.switches)
        return found

    def entropy(self, mean: torch.Tensor, std: torch.Tensor) -> torch.Tensor:
        """Returns the entropy (n,) of actions in nats."""
        found = gaussian.entropy(std, self.amounts)
        if self._has_switches:
            found = found + gaussian.switch_entropy(mean, std, self.switches)
        return found

    def value(self, true_state: torch.Tensor) -> torch.Tensor:
        """Returns the critic's value (n,) of true states (n, c)."""
        assert self.critic is not None
        if self.settings.normalise_observations:
            true_state = self.moments[CRITIC](true_state)
        if self.settings.magnify_state:
            true_state = _magnified(true_state)
        value: torch.Tensor = self.value_head(self.critic(true_state)).squeeze(1)
        return value

    def towers(self) -> list[tuple[Tower, ...]]:
        """Returns the towers by image size: each entry has the policy's tower, then the value's.

        The list is empty for a frozen encoder, whose normalisation must stay as it is.
        """
        if self.settings.frozen_encoder:
            return []
        eyes = [trunk.encoder for trunk in self._trunks() if isinstance(trunk.encoder, Towers)]
        return list(zip(*(eye.towers for eye in eyes), strict=True))

    def compile_encoders(self, backend: str = "inductor") -> None:
        """Compiles the encoders with torch.compile, at their next use; weights keep their names."""
        for trunk in self._trunks():
            if trunk.encoder is not None:
                # Mini-batches differ in size, so the batch axis is dynamic.
                trunk.encoder.compile(backend=backend, dynamic=True)

    def _trunks(self) -> list["Trunk"]:
        """Returns the trunks: the action's first, the value's last."""
        return [trunk for trunk in (self.trunk, self.value_trunk) if trunk is not None]

    def _inputs(self, observation: TensorObservation, previous_action: torch.Tensor) -> "Inputs":
        vector = observation["state"]
        vision = observation.get(VISION) if self._caches else None
        pictures = {} if vision is not None else {n: observation[n] for n in self._pictures}
        if self.settings.sight:
            vector, pictures = self._near(vector, pictures)
        fovea = None
        if side := self.settings.glimpse:
            depth, gaze = pictures[DEPTH], vector[:, slice(*self.spec.gaze)]
            fovea = glimpse.cut_out(depth, gaze, side, self.spec.far)
            pictures = pictures | {DEPTH: glimpse.whole(depth)}
        if self.settings.normalise_observations:
            vector = self.moments["state"](vector)
        if self.settings.magnify_state:
            vector = _magnified(vector)
        if self.settings.previous_action:
            previous = torch.where(self.mask, previous_action, 0.0)
            vector = torch.cat((vector, previous), dim=1)
        return Inputs(vector, pictures, observation.get(MAP), vision, fovea)

    def _seen(self, inputs: "Inputs") -> list["Inputs"]:
        """Returns each trunk's inputs; with a frozen encoder, its output instead of the images."""
        if not self._caches:
            return [inputs] * len(self._vision_sizes)
        if inputs.vision is None:
            parts = [trunk.see(inputs) for trunk in self._trunks()]
        else:
            parts = list(inputs.vision.split(self._vision_sizes, dim=1))
        return [dataclasses.replace(inputs, vision=part) for part in parts]

    def _near(
        self, vector: torch.Tensor, pictures: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Clamps laser rays and depth images to the policy's maximum range.

        Colour and class images are unchanged.
        """
        sight, rays = self.settings.sight, slice(*self.spec.rays)
        vector = vector.clone()
        vector[:, rays] = vector[:, rays].clamp(max=sight)
        far = sight / self.spec.far
        near = {
            name: picture.clamp(max=far) if kind_of(name) == DEPTH else picture
            for name, picture in pictures.items()
        }
        return vector, near

    def _step(
        self,
        observation: TensorObservation,
        features: Sequence[torch.Tensor],
        memory: torch.Tensor | None,
        vision: torch.Tensor | None = None,
    ) -> PolicyStep:
        mean, std = self.action_head(features[0].float())
        if self.critic is None:
            value = self.value_head(features[-1].float()).squeeze(1)
        elif CRITIC in observation:
            value = self.value(observation[CRITIC])
        else:  # deployed, without the true state
            value = torch.zeros(len(mean), device=mean.device)
        if self.settings.grip_rule:
            mean, std = self._ruled(mean, std, observation["state"])
        shown = torch.where(self.mask, mean, 0.0)
        return PolicyStep(shown, std, value, memory, features[0], vision)

    def _ruled(
        self, mean: torch.Tensor, std: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Sets mean and standard deviation (n, A) of the grip by its rule, without randomness."""
        column, part = self.spec.grip_rule
        dimension = torch.arange(mean.shape[1], device=mean.device) == part
        mean = torch.where(dimension, state[:, column, None], mean)
        return mean, torch.where(dimension, _RULED_STD, std)

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.settings.dtype == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.mask.device.type, torch.bfloat16)


@dataclasses.dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs of a trunk for n rows."""

    vector: torch.Tensor  # (n, k), state and previous action
    pictures: dict[str, torch.Tensor]  # (n, H, W), colour (n, H, W, 3)
    map: torch.Tensor | None  # (n, 2, H, W)
    vision: torch.Tensor | None = None  # (n, V), output of a frozen encoder
    glimpse: torch.Tensor | None = None  # (n, 1, G, G), depth around the goal, relative to it


class Trunk(nn.Module):
    """Network from observation and previous action to features (n, `size`), LSTM optional."""

    def __init__(self, spec: EnvSpec, settings: PolicySettings) -> None:
        super().__init__()
        self.encoder, self.vision_size = _encoder(spec, settings)
        inputs = _state_size(spec.observations["state"][0], settings)
        inputs += spec.action_size if settings.previous_action else 0
        if self.encoder is not None and settings.frozen_encoder:
            self.encoder.requires_grad_(False)
        self._frozen = settings.frozen_encoder
        widths = settings.state_widths
        self.embed = _mlp(inputs, widths, settings.activation)
        self.size = widths[-1] + self.vision_size
        self.map_encoder: SmallCnn | None = None
        if MAP in spec.observations:
            self.map_encoder = SmallCnn(spec.observations[MAP], settings.map_width)
            self.size += settings.map_width
        self.glimpse_encoder: SmallCnn | None = None
        if settings.glimpse:
            shape = (1, settings.glimpse, settings.glimpse)
            self.glimpse_encoder = SmallCnn(shape, glimpse.SIZE, GLIMPSE_STAGES)
            self.size += glimpse.SIZE
        self.recurrent: Recurrent | None = None
        self.memory_size = 0
        if settings.lstm_layers:
            self.recurrent = Recurrent(self.size, settings.lstm_layers, settings.lstm_width)
            self.size, self.memory_size = settings.lstm_width, self.recurrent.memory_size

    def step(self, inputs: Inputs, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Runs one step: inputs of n rows, memory (n, M) -> features, memory."""
        x, _ = self._look(inputs)
        return (x, memory) if self.recurrent is None else self.recurrent.step(x, memory)

    def forward(self, inputs: Inputs, pack: Pack) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Runs sequences: inputs of S rows in packed order -> features (S, size), vision (S, V)."""
        x, vision = self._look(inputs)
        return (x if self.recurrent is None else self.recurrent(x, pack)), vision

    def see(self, inputs: Inputs) -> torch.Tensor:
        """Encodes the images of n rows to (n, `vision_size`)."""
        assert self.encoder is not None
        # Without gradients, no activations are stored for a backward pass.
        with torch.no_grad() if self._frozen else contextlib.nullcontext():
            towers = isinstance(self.encoder, Towers)
            vision: torch.Tensor = self.encoder(
                inputs.pictures if towers else inputs.pictures[DEPTH]
            )
        return vision

    def _look(self, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor | None]:
        parts, vision = [self.embed(inputs.vector)], inputs.vision
        if self.encoder is not None:
            vision = self.see(inputs) if vision is None else vision
            parts.insert(0, vision)
        if self.map_encoder is not None:
            parts.append(self.map_encoder(inputs.map))
        if self.glimpse_encoder is not None:
            parts.append(self.glimpse_encoder(inputs.glimpse))
        return (torch.cat(parts, 1) if len(parts) > 1 else parts[0]), vision


class GaussianHead(nn.Module):
    """Network from features (n, size) to mean and standard deviation (n, A) of the action.

    Means begin near `EnvSpec.initial_mean`, standard deviations at `EnvSpec.initial_std`, within
    their bounds. The standard deviation of switches is fixed if `PolicySettings.switch_std` is
    above 0.

    Raises:
        UserError: the initial standard deviation is not within its bounds.
    """

    fixed: torch.Tensor  # (A,) bool

    def __init__(self, size: int, spec: EnvSpec, settings: PolicySettings) -> None:
        super().__init__()
        actions = spec.action_size
        settings.check()
        initial, low, high = settings.initial_std, settings.min_std, settings.max_std
        self.bounds = math.log(low), math.log(high)
        self.squash, self.switch_std = settings.squash_mean, settings.switch_std
        fixed = torch.zeros(actions, dtype=torch.bool)
        if settings.switches and settings.switch_std > 0.0:
            fixed[list(spec.switches)] = True
        self.register_buffer("fixed", fixed, persistent=False)
        self.mean = _linear(size, actions, 0.01)
        if spec.initial_mean:
            wanted = torch.tensor(spec.initial_mean)
            with torch.no_grad():
                self.mean.bias.copy_(torch.atanh(wanted) if self.squash else wanted)
        given = torch.tensor(spec.initial_std or [0.0] * actions)
        log_std = torch.where(given > 0, given, initial).clamp(low, high).log()
        self.log_std: nn.Parameter | None = None
        if settings.std == "parameter":
            self.log_std = nn.Parameter(log_std)
        else:
            self.std = _linear(size, actions, 0.01)
            with torch.no_grad():
                self.std.bias.copy_(log_std)

    def bound(self, most: float) -> None:
        """Clamps standard deviations that are parameters to at most `most`."""
        if self.log_std is not None:
            with torch.no_grad():
                self.log_std.clamp_(max=math.log(most))

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean = self.mean(features)
        log_std = self.std(features) if self.log_std is None else self.log_std
        # Without gradients, the plain clamp gives the same result in a tenth of the time.
        bounded = _Bounded.apply if torch.is_grad_enabled() else torch.clamp
        std = torch.where(self.fixed, self.switch_std, bounded(log_std, *self.bounds).exp())
        return torch.tanh(mean) if self.squash else mean, std.expand_as(mean)


class _Bounded(torch.autograd.Function):
    """Clamp that keeps the gradient of an input outside its bounds if it points back inside.

    With an ordinary clamp, a parameter that an optimiser step moves past its bound has no gradient
    any more and stays there.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, low: float, high: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.bounds = low, high
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (x,) = ctx.saved_tensors
        low, high = ctx.bounds
        outwards = ((x <= low) & (gradient > 0)) | ((x >= high) & (gradient < 0))
        return gradient.masked_fill(outwards, 0.0), None, None


def _encoder(spec: EnvSpec, settings: PolicySettings) -> tuple[nn.Module | None, int]:
    """Creates the encoder; returns it and the size of its output, or None and 0 without one."""
    name, width, size = settings.encoder, settings.encoder_width, settings.visual_width
    if settings.glimpse:
        halves = tuple(n // 2 for n in spec.observations[DEPTH])
        spec = dataclasses.replace(spec, observations=spec.observations | {DEPTH: halves})
    seen, of_timm = pictures_of(spec.observations), name.startswith(TIMM)
    if name == "state" or not seen or (seen == ONLY_DEPTH and not of_timm):
        made = make_encoder(name, width, spec.observations, size)
        return made, size if made is not None else 0
    check_encoder(name)
    towers = Towers(name, width, spec, size)
    return towers, towers.size


def _critic(spec: EnvSpec, settings: PolicySettings) -> nn.Sequential:
    """Creates the layers from the true state to the input of the value head."""
    if CRITIC not in spec.observations:
        raise UserError("critic: the environments do not provide the true state")
    if settings.separate_value:
        raise UserError("separate_value: contradicts critic; set one of them to false")
    inputs = _state_size(spec.observations[CRITIC][0], settings)
    return _mlp(inputs, [_CRITIC_WIDTH] * _CRITIC_LAYERS)


def _state_size(size: int, settings: PolicySettings) -> int:
    """Returns the number of inputs that a network gets for a state of `size` numbers."""
    return size * (1 + len(MAGNIFIED)) if settings.magnify_state else size


def _magnified(state: torch.Tensor) -> torch.Tensor:
    """Returns states (n, k) with magnified copies appended, (n, (1 + len(MAGNIFIED)) k).

    Without them, the last centimetres of a reach are small compared with metres and radians.
    """
    return torch.cat((state, *(torch.tanh(by * state) for by in MAGNIFIED)), dim=1)


def _mlp(inputs: int, widths: Sequence[int], activation: str = "tanh") -> nn.Sequential:
    """Creates a network with layers of these widths.

    Before SELUs, the initial weights of each unit have norm one, so that outputs keep the mean 0
    and variance 1 of the inputs (Klambauer et al. 2017, section 2).
    """
    modules: list[nn.Module] = []
    for before, after in itertools.pairwise([inputs, *widths]):
        layer = _linear(before, after, math.sqrt(2))
        if activation == "selu":
            with torch.no_grad():
                layer.weight.normal_().div_(layer.weight.norm(dim=1, keepdim=True))
        modules += [layer, *([] if activation == "none" else [_ACTIVATIONS[activation]()])]
    return nn.Sequential(*modules)


def _linear(inputs: int, outputs: int, gain: float) -> nn.Linear:
    """Creates a layer with orthogonal initial weights and zero bias, as is usual for PPO."""
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer
