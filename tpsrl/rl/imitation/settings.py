"""Settings of cloning; imports no torch, so that help and errors appear at once."""

import dataclasses

from tpsrl import config


@dataclasses.dataclass(frozen=True, slots=True)
class CloningSettings:
    """Settings of behaviour cloning."""

    learning_rate: float = config.option(1e-3, "initial learning rate of Adam", minimum=0)
    final_rate: float = config.option(
        3e-5, "final learning rate, reached by a half cosine", minimum=0
    )
    batch_frames: int = config.option(2048, "frames per batch of whole episodes", minimum=1)
    max_grad_norm: float = config.option(1.0, "maximum gradient norm", minimum=1e-9)
    sensing_noise: float = config.option(
        0.0,
        "standard deviation of a random scale factor on each image and laser ray",
        minimum=0,
    )
    switch_weight: float = config.option(
        0.2, "weight of the cross entropy of grip and stop", minimum=0
    )
