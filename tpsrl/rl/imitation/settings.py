"""What cloning can be told; imports no torch, so that help and errors come at once."""

import dataclasses

from tpsrl import config


@dataclasses.dataclass(frozen=True, slots=True)
class CloningSettings:
    """How a policy is fitted to demonstrations."""

    learning_rate: float = config.option(1e-3, "Adam's rate at the start", minimum=0)
    final_rate: float = config.option(3e-5, "and at the end, after half a cosine", minimum=0)
    batch_frames: int = config.option(2048, "frames of a batch, of whole episodes", minimum=1)
    max_grad_norm: float = config.option(1.0, "longer gradients are cut to it", minimum=1e-9)
    sensing_noise: float = config.option(
        0.0,
        "standard deviation of a factor by which each picture, and each ray of the laser, is off",
        minimum=0,
    )
    switch_weight: float = config.option(
        0.2, "of the cross entropy of grip and stop beside the distance of arm and base", minimum=0
    )
