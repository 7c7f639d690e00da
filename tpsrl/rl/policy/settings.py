"""Settings of the network; imports no torch, so that help and errors appear at once."""

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tpsrl import config
from tpsrl.errors import UserError, unknown
from tpsrl.runtime import records

ENCODER_NAMES = (  # built in
    "resnet18",
    "se_resnet9",
    "nature_cnn",
    "resnet50",
    "se_resnext50",
    "se_resnext101",
    "habitat_resnet18",
    "state",
)
TIMM = "timm:"  # before the name of a network of timm, as an encoder
SMALLEST_DEPTH = 32  # pixels a side; the residual encoders halve the resolution five times
SMALLEST_GLIMPSE = 17  # pixels a side, for the convolutions of `tpsrl.rl.policy.small_cnn`
_MOST_LAYERS = 64
# Missing in checkpoints of version 0.1; the defaults are that version's behaviour.
_LATER = (
    "previous_action",
    "magnify_state",
    "map_width",
    "sight",
    "critic",
    "frozen_encoder",
    "switches",
    "switch_std",
    "activation",
    "narrowing",
    "normalise_observations",
    "glimpse",
    "grip_rule",
)


@dataclasses.dataclass(frozen=True, slots=True)
class PolicySettings:
    """Settings of the network. The defaults are those of the VER paper (section 4), where given.

    Bounds and initial value of the standard deviation are habitat-lab 0.3.3's, given there as
    logarithms: -5, 2 and, for its skills, -1.
    """

    encoder: str = config.option(
        "resnet18",
        f"visual encoder: {', '.join(ENCODER_NAMES)}, timm:NAME, or one of your own",
    )
    encoder_width: int = config.option(32, "channels of the first encoder stage", minimum=1)
    visual_width: int = config.option(512, "size of the visual features", minimum=1)
    frozen_encoder: bool = config.option(False, "freeze the encoder; set by frozen=true")
    state_width: int = config.option(64, "width of the state layers", minimum=1)
    state_layers: int = config.option(1, "number of state layers", minimum=1, maximum=_MOST_LAYERS)
    previous_action: bool = config.option(
        True, "input the previous action; not recommended for cloning"
    )
    magnify_state: bool = config.option(
        False, "also input two magnified copies of the state, for small values"
    )
    activation: Literal["tanh", "selu", "none"] = config.option(
        "tanh", "activation of the state layers: tanh, selu, or none"
    )
    narrowing: bool = config.option(False, "give each state layer half the width of the last one")
    normalise_observations: bool = config.option(
        False, "normalise the state by the running mean and deviation of all observations so far"
    )
    map_width: int = config.option(
        64, "size of the height-map features (height_map=true)", minimum=1
    )
    sight: float = config.option(
        0.0,
        "maximum range of depth and laser (m), which reduces overfitting to rooms; 0: full range",
        minimum=0.0,
    )
    glimpse: int = config.option(
        0,
        "side in pixels of a cut-out of head depth around the gaze, beside the image at half its "
        "resolution (sensors=gaze); 0: none",
        minimum=0,
    )
    grip_rule: bool = config.option(
        False, "close the grip by the sensor grip_rule instead of by the network (teachers of Pick)"
    )
    lstm_layers: int = config.option(
        2, "number of LSTM layers; 0: no memory", minimum=0, maximum=_MOST_LAYERS
    )
    lstm_width: int = config.option(512, "width of the LSTM layers", minimum=1)
    separate_value: bool = config.option(
        False, "use a separate network for the value, LSTM included"
    )
    critic: bool = config.option(
        False,
        "asymmetric critic: a small memoryless network of the true state, used in training only",
    )
    squash_mean: bool = config.option(True, "squash means to [-1, 1] by tanh")
    std: Literal["parameter", "network"] = config.option(
        "parameter", "standard deviation: one parameter per dimension, or a network output"
    )
    initial_std: float = config.option(
        0.37, "initial standard deviation", minimum=1e-6, maximum=10.0
    )
    min_std: float = config.option(0.0067, "minimum standard deviation", minimum=1e-6, maximum=10.0)
    max_std: float = config.option(7.4, "maximum standard deviation", minimum=1e-6, maximum=10.0)
    switches: bool = config.option(
        False, "treat grip and stop as binary in probabilities and entropy"
    )
    switch_std: float = config.option(
        0.0,
        "standard deviation of the binary dimensions; 0: the same as the others",
        minimum=0.0,
        maximum=10.0,
    )
    dtype: Literal["float32", "bfloat16"] = config.option(
        "float32", "floating-point type of the network; outputs are float32"
    )

    @property
    def state_widths(self) -> tuple[int, ...]:
        """Widths of the state layers, from the first to the last."""
        halves = range(self.state_layers) if self.narrowing else [0] * self.state_layers
        return tuple(self.state_width >> half for half in halves)

    def check(self, prefix: str = "") -> None:
        """Checks that the settings are consistent.

        Args:
            prefix: prefix of field names in errors

        Raises:
            UserError: the initial standard deviation is not within its bounds, the state layers are
                too narrow to be halved, the state is to be both normalised and magnified, or the
                glimpse is too small for its encoder.
        """
        if self.state_widths[-1] < 1:
            least = 2 ** (self.state_layers - 1)
            raise UserError(
                f"{prefix}state_width: {self.state_width} is too small for {self.state_layers} "
                f"narrowing layers, must be at least {least}"
            )
        if self.normalise_observations and self.magnify_state:
            raise UserError(
                f"{prefix}normalise_observations: contradicts {prefix}magnify_state; set one of "
                "them to false"
            )
        if 0 < self.glimpse < SMALLEST_GLIMPSE:
            raise UserError(
                f"{prefix}glimpse: {self.glimpse} is too small, must be 0 or at least "
                f"{SMALLEST_GLIMPSE}"
            )
        low, initial, high = self.min_std, self.initial_std, self.max_std
        if not low <= initial <= high:
            raise UserError(
                f"{prefix}initial_std: {initial} is not between {low} and {high} "
                f"({prefix}min_std and {prefix}max_std)"
            )

    def to_json(self) -> dict[str, Any]:
        """Returns the settings as JSON types by name."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(note: Mapping[str, Any]) -> "PolicySettings":
        """Restores the settings of `to_json`.

        Raises:
            UserError: an entry is unknown, missing, of the wrong type, or outside its range.
        """
        names = [field.name for field in dataclasses.fields(PolicySettings)]
        for name in note:
            if name not in names:
                raise unknown("policy settings", name, names)
        missing = [name for name in names if name not in note and name not in _LATER]
        if missing:
            raise UserError(f"policy settings: {', '.join(missing)} missing")
        for name, choices in _CHOICES.items():
            if name in note and note[name] not in choices:
                raise unknown(name, str(note[name]), choices)
        settings = records.decode(dict(note), PolicySettings, "policy settings")
        for name in names:
            config.check_range(PolicySettings, name, getattr(settings, name))
        return settings


_CHOICES = {
    name: typing.get_args(kind)
    for name, kind in typing.get_type_hints(PolicySettings).items()
    if typing.get_origin(kind) is Literal
}


def check_depth(encoder: str, shape: Sequence[int], field: str = "depth") -> None:
    """Checks that images are large enough for an encoder.

    Args:
        encoder: name of the encoder; "state" uses no images
        shape: height and width of the images, pixels
        field: setting in which the size was given, for the error

    Raises:
        UserError: the image is too small; the message has the minimum size.
    """
    if encoder != "state" and (len(shape) != 2 or min(shape) < SMALLEST_DEPTH):
        sides = " x ".join(str(side) for side in shape)
        raise UserError(
            f"{field}: {sides} is too small, must be at least {SMALLEST_DEPTH} x {SMALLEST_DEPTH}"
        )
