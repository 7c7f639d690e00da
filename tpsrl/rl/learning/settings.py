"""What the learner can be told; imports no torch, so that help and errors come at once."""

import dataclasses
import math
from typing import Literal

from tpsrl import config
from tpsrl.errors import UserError

# Larger ones are slips, by which a float32 overflows.
_LARGEST_RATE = 10.0
_LARGEST_WEIGHT = 1e6
# A signal to stop is looked at only behind an update.
_MOST_PASSES = 100
_MOST_PARTS = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class PPOSettings:
    """How to learn; by default as in VER's Table A1.

    What the paper does not say is from habitat-baselines 0.3.3 (gradient norm, Adam's epsilon, the
    1/2 in the value loss). There the entropy coefficient has the policy's rate, 2.5e-4 a step, by
    which a factor of ten takes 9,000 steps; ours by default takes a hundred updates.
    """

    learning_rate: float = config.option(
        2.5e-4, "Adam's rate at the start", minimum=0, maximum=_LARGEST_RATE
    )
    schedule: Literal["cosine", "linear", "constant", "adaptive"] = config.option(
        "cosine", "how the rate falls to 0 by the end of training, or follows the KL (adaptive)"
    )
    desired_kl: float = config.option(
        0.01, "adaptive: the rate falls above twice this KL and rises below half of it", minimum=0
    )
    final_kl: float | None = config.option(
        None,
        "adaptive: the desired KL falls to this in the course of the training (default: it stays)",
        minimum=0,
    )
    rate_min: float = config.option(1e-6, "adaptive: least rate", minimum=0, maximum=_LARGEST_RATE)
    rate_max: float = config.option(
        1e-3, "adaptive: largest rate", minimum=0, maximum=_LARGEST_RATE
    )
    value_learning_rate: float | None = config.option(
        None,
        "rate of the value's own parameters (default: the same as the policy's)",
        minimum=0,
        maximum=_LARGEST_RATE,
    )
    value_warm_up: int = config.option(
        0, "steps of experience at first from which only the value is learned", minimum=0
    )
    value_epochs: int = config.option(
        0,
        "further passes over a rollout for a value with a network of its own (critic)",
        minimum=0,
        maximum=_MOST_PASSES,
    )
    adam_eps: float = config.option(1e-5, "Adam's epsilon", minimum=1e-12, maximum=1.0)
    epochs: int = config.option(3, "passes over a rollout", minimum=1, maximum=_MOST_PASSES)
    minibatches: int = config.option(
        2, "equal parts of a rollout, a gradient step each", minimum=1, maximum=_MOST_PARTS
    )
    gamma: float = config.option(0.99, "discount of a step", minimum=0, maximum=1)
    gae_lambda: float = config.option(0.95, "weight of each further step", minimum=0, maximum=1)
    value_lambda: float | None = config.option(
        None, "gae_lambda of the value's targets (default: the same)", minimum=0, maximum=1
    )
    clip: float = config.option(0.2, "how far from 1 the ratio still moves the policy", minimum=0)
    value_coef: float = config.option(
        0.5, "weight of half the squared error of values", minimum=0, maximum=_LARGEST_WEIGHT
    )
    max_grad_norm: float = config.option(0.2, "longer gradients are cut to it, 0: none", minimum=0)
    normalise_advantage: bool = config.option(
        False, "advantages of a rollout to mean 0, deviation 1"
    )
    clip_value_loss: bool = config.option(False, "values move by `clip` at most, as the ratio does")
    entropy_coef: float = config.option(
        1e-3,
        "coefficient of the entropy, at the start; 0: none, and none is learned",
        minimum=0,
        maximum=_LARGEST_WEIGHT,
    )
    entropy_learned: bool = config.option(True, "whether the coefficient follows the entropy")
    entropy_target: float = config.option(0.0, "entropy in nats that it is to keep")
    entropy_min: float = config.option(
        1e-4, "least coefficient, if learned", minimum=0, maximum=_LARGEST_WEIGHT
    )
    entropy_max: float = config.option(
        1.0, "largest coefficient, if learned", minimum=0, maximum=_LARGEST_WEIGHT
    )
    entropy_learning_rate: float | None = config.option(
        None,
        "Adam's rate for its logarithm (default: a factor of 10 in 100 updates)",
        minimum=0,
        maximum=_LARGEST_RATE,
    )
    importance_max: float = config.option(
        1.0, "largest weight against sampling bias, 0: none", minimum=0
    )
    importance_renormalise: bool = config.option(False, "scale these weights to a mean of 1")
    correction_max: float = config.option(
        2.0, "largest weight of a step by a former policy, its probability now / then", minimum=0
    )
    equal_ranks: bool = config.option(
        False, "ranks count alike, as in DD-PPO; false: by their fresh steps"
    )
    target_kl: float | None = config.option(
        None, "an epoch that moves the policy further is the last", minimum=0
    )
    imitation_coef: float = config.option(
        0.0,
        "weight of the imitation loss at the start, where there are demonstrations",
        minimum=0,
        maximum=_LARGEST_WEIGHT,
    )
    imitation_until: float = config.option(
        0.5, "share of the training at which this weight has fallen to 0", minimum=0, maximum=1
    )

    surrogate: bool = config.option(
        True, "false: the policy is not improved by its returns, only by its teacher"
    )
    teacher_coef: float = config.option(
        0.0, "weight of the distance to the teacher", minimum=0, maximum=_LARGEST_WEIGHT
    )
    teacher_falls: bool = config.option(
        False, "this weight falls to 0 by the end of the training, in proportion"
    )
    switch_weight: float = config.option(
        0.2, "of grip and stop in the distance to the teacher", minimum=0, maximum=_LARGEST_WEIGHT
    )
    auxiliary_coef: float = config.option(
        0.0,
        "weight of reading the true state off the policy's features (critic)",
        minimum=0,
        maximum=_LARGEST_WEIGHT,
    )

    @property
    def norm_limit(self) -> float:
        """To which longer gradients are cut, infinite for none."""
        return self.max_grad_norm or math.inf

    def check(self, prefix: str = "") -> None:
        """Refuses what does not fit together; `prefix` stands before the names of fields.

        Raises:
            UserError: a rate or a coefficient is outside its bounds, or these are in the wrong
                order. Without a bonus its bounds do not matter.
        """
        low, rate, high = self.rate_min, self.learning_rate, self.rate_max
        if self.schedule == "adaptive" and not low <= rate <= high:
            raise UserError(
                f"{prefix}learning_rate: {rate} is not between {low} and {high} ({prefix}rate_min "
                f"and {prefix}rate_max)"
            )
        low, initial, high = self.entropy_min, self.entropy_coef, self.entropy_max
        if initial > 0.0 and low > high:
            raise UserError(f"{prefix}entropy_min: {low} is above {prefix}entropy_max, {high}")
        if initial > 0.0 and self.entropy_learned and not low <= initial <= high:
            raise UserError(
                f"{prefix}entropy_coef: {initial} is not between {low} and {high} "
                f"({prefix}entropy_min and {prefix}entropy_max)"
            )
