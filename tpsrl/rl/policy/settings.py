"""What the network can be told; imports no torch, so that help and errors come at once."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tpsrl import config
from tpsrl.errors import UserError, unknown

ENCODER_NAMES = (  # in the box
    "resnet18",
    "se_resnet9",
    "nature_cnn",
    "resnet50",
    "se_resnext50",
    "se_resnext101",
    "state",
)
SMALLEST_DEPTH = 32  # pixels a side; the residual encoders halve the resolution five times
_MOST_LAYERS = 64
# Not in the notes of 0.1; their defaults are what was then.
_LATER = (
    "previous_action",
    "magnify_state",
    "map_width",
    "sight",
    "critic",
    "frozen_encoder",
    "switches",
    "switch_std",
)


@dataclasses.dataclass(frozen=True, slots=True)
class PolicySettings:
    """What the network is made of. The defaults are the VER paper's (section 4), where it says.

    Bounds and initial value of the standard deviation are habitat-lab 0.3.3's, which has them as
    logarithms -5, 2 and, for its skills, -1.
    """

    encoder: str = config.option(
        "resnet18",
        f"what looks at depth: {', '.join(ENCODER_NAMES)}, or one of your own",
    )
    encoder_width: int = config.option(32, "channels of the encoder's first stage", minimum=1)
    visual_width: int = config.option(
        512, "numbers that the encoder sums an image up in", minimum=1
    )
    frozen_encoder: bool = config.option(
        False, "the encoder stays as it begins; `frozen=true` of a training"
    )
    state_width: int = config.option(
        64, "width of the layers that read state and action", minimum=1
    )
    state_layers: int = config.option(
        1, "how many of these layers", minimum=1, maximum=_MOST_LAYERS
    )
    previous_action: bool = config.option(
        True, "the network is shown the action before; one that is cloned had better not be"
    )
    magnify_state: bool = config.option(
        False, "the state is shown under two magnifying glasses as well, for what is near zero"
    )
    map_width: int = config.option(
        64, "numbers that a height map is summed up in (height_map=true)", minimum=1
    )
    sight: float = config.option(
        0.0,
        "metres beyond which camera and laser see nothing, so that no room is learned by heart; "
        "0: as far as they do",
        minimum=0.0,
    )
    lstm_layers: int = config.option(
        2, "layers of the LSTM; 0 has no memory", minimum=0, maximum=_MOST_LAYERS
    )
    lstm_width: int = config.option(512, "width of each layer of the LSTM", minimum=1)
    separate_value: bool = config.option(False, "the value has a network of its own, LSTM included")
    critic: bool = config.option(
        False,
        "the value is read off the true state alone, by a small network without memory, which only "
        "training needs",
    )
    squash_mean: bool = config.option(True, "means are kept within -1 and 1 by tanh")
    std: Literal["parameter", "network"] = config.option(
        "parameter", "the standard deviation is one parameter per dimension, or a network's output"
    )
    initial_std: float = config.option(
        0.37, "standard deviation at the start", minimum=1e-6, maximum=10.0
    )
    min_std: float = config.option(0.0067, "least standard deviation", minimum=1e-6, maximum=10.0)
    max_std: float = config.option(7.4, "largest standard deviation", minimum=1e-6, maximum=10.0)
    switches: bool = config.option(
        False, "grip and stop count by their sign alone, in probabilities and entropy"
    )
    switch_std: float = config.option(
        0.0,
        "standard deviation of these, so that both signs are drawn now and then; 0: as of others",
        minimum=0.0,
        maximum=10.0,
    )
    dtype: Literal["float32", "bfloat16"] = config.option(
        "float32", "arithmetic of the network; what comes out is float32"
    )

    def check(self, prefix: str = "") -> None:
        """Refuses what does not fit together; `prefix` stands before the names of fields.

        Raises:
            UserError: the initial standard deviation is not within its bounds.
        """
        low, initial, high = self.min_std, self.initial_std, self.max_std
        if not low <= initial <= high:
            raise UserError(
                f"{prefix}initial_std: {initial} is not between {low} and {high} "
                f"({prefix}min_std and {prefix}max_std)"
            )

    def to_json(self) -> dict[str, Any]:
        """JSON types by name."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(note: Mapping[str, Any]) -> "PolicySettings":
        """The settings of `to_json`.

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
        texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in note.items()}
        return config.load(PolicySettings, [f"{key}={text}" for key, text in texts.items()])


def check_depth(encoder: str, shape: Sequence[int]) -> None:
    """Refuses pictures that are too small for an encoder.

    Args:
        encoder: its name; "state" looks at none
        shape: height and width of the camera's pictures, pixels

    Raises:
        UserError: names the smallest.
    """
    if encoder != "state" and (len(shape) != 2 or min(shape) < SMALLEST_DEPTH):
        sides = " x ".join(str(side) for side in shape)
        raise UserError(
            f"depth: {sides} is too small, must be at least {SMALLEST_DEPTH} x {SMALLEST_DEPTH}"
        )
