"""Settings of the learner; imports no torch, so that help and errors appear at once."""

import dataclasses
import math
from typing import Literal

from tpsrl import config
from tpsrl.errors import UserError

# Larger values are typing errors and overflow float32.
_LARGEST_RATE = 10.0
_LARGEST_WEIGHT = 1e6
# Stop signals are only checked after an update, so its length is limited.
_MOST_PASSES = 100
_MOST_PARTS = 10_000
AUXILIARY_NAMES = ("state", "cpca")  # built-in auxiliary losses
_STATE = AUXILIARY_NAMES[0]


@dataclasses.dataclass(frozen=True, slots=True)
class PPOSettings:
    """Settings of PPO. The defaults are those of VER's Table A1.

    Values that the paper does not give are from habitat-baselines 0.3.3 (gradient norm, Adam's
    epsilon, the 1/2 in the value loss). In habitat-baselines the entropy coefficient has the
    policy's learning rate, 2.5e-4 per step, at which a factor of ten takes 9,000 steps; here the
    default rate takes a hundred updates.
    """

    learning_rate: float = config.option(
        2.5e-4, "initial learning rate of Adam", minimum=0, maximum=_LARGEST_RATE
    )
    schedule: Literal["cosine", "linear", "constant", "adaptive"] = config.option(
        "cosine",
        "learning-rate schedule: decay to 0 by the end of training, or follow the KL (adaptive)",
    )
    desired_kl: float = config.option(
        0.01,
        "adaptive: the rate decreases above twice this KL and increases below half of it",
        minimum=0,
    )
    final_kl: float | None = config.option(
        None,
        "adaptive: final value of desired_kl, reached at the end of training (default: constant)",
        minimum=0,
    )
    rate_min: float = config.option(
        1e-6, "adaptive: minimum learning rate", minimum=0, maximum=_LARGEST_RATE
    )
    rate_max: float = config.option(
        1e-3, "adaptive: maximum learning rate", minimum=0, maximum=_LARGEST_RATE
    )
    base_batch: int = config.option(
        0,
        "reference mini-batch size of learning_rate: the rate is multiplied by the square root of "
        "the actual size over this, and decays to learning_rate by half of training; 0: not scaled",
        minimum=0,
    )
    value_learning_rate: float | None = config.option(
        None,
        "learning rate of the value's own parameters (default: the policy's)",
        minimum=0,
        maximum=_LARGEST_RATE,
    )
    value_warm_up: int = config.option(
        0, "initial steps in which only the value is trained", minimum=0
    )
    value_epochs: int = config.option(
        0,
        "extra epochs for a value with its own network (critic)",
        minimum=0,
        maximum=_MOST_PASSES,
    )
    adam_eps: float = config.option(1e-5, "Adam's epsilon", minimum=1e-12, maximum=1.0)
    optimizer: Literal["adam", "lamb"] = config.option(
        "adam", "adam, or lamb, which scales the steps of each layer to its weights"
    )
    weight_decay: float = config.option(0.0, "lamb: weight decay", minimum=0, maximum=1.0)
    trust_min: float = config.option(
        0.01,
        "lamb: minimum of a layer's scale; its maximum is the inverse",
        minimum=1e-6,
        maximum=1,
    )
    epochs: int = config.option(3, "epochs per rollout", minimum=1, maximum=_MOST_PASSES)
    minibatches: int = config.option(2, "mini-batches per epoch", minimum=1, maximum=_MOST_PARTS)
    gamma: float = config.option(0.99, "discount factor", minimum=0, maximum=1)
    gae_lambda: float = config.option(
        0.95, "lambda of generalised advantage estimation", minimum=0, maximum=1
    )
    value_lambda: float | None = config.option(
        None, "lambda of the value targets (default: gae_lambda)", minimum=0, maximum=1
    )
    clip: float = config.option(0.2, "clip range of the probability ratio", minimum=0)
    value_coef: float = config.option(
        0.5, "weight of the value loss (half the squared error)", minimum=0, maximum=_LARGEST_WEIGHT
    )
    max_grad_norm: float = config.option(0.2, "maximum gradient norm; 0: no clipping", minimum=0)
    normalise_advantage: bool = config.option(False, "normalise the advantages of a rollout")
    clip_value_loss: bool = config.option(False, "clip value updates by `clip`")
    entropy_coef: float = config.option(
        1e-3,
        "initial entropy coefficient; 0: no entropy bonus, even with entropy_learned",
        minimum=0,
        maximum=_LARGEST_WEIGHT,
    )
    entropy_learned: bool = config.option(True, "learn the entropy coefficient")
    entropy_target: float = config.option(0.0, "target entropy (nats)")
    entropy_min: float = config.option(
        1e-4, "minimum entropy coefficient, if learned", minimum=0, maximum=_LARGEST_WEIGHT
    )
    entropy_max: float = config.option(
        1.0, "maximum entropy coefficient, if learned", minimum=0, maximum=_LARGEST_WEIGHT
    )
    entropy_learning_rate: float | None = config.option(
        None,
        "learning rate of its logarithm (default: a factor of 10 in 100 updates)",
        minimum=0,
        maximum=_LARGEST_RATE,
    )
    importance_max: float = config.option(
        1.0, "maximum importance weight against sampling bias; 0: no weights", minimum=0
    )
    importance_renormalise: bool = config.option(
        False, "normalise importance weights to a mean of 1"
    )
    correction_max: float = config.option(
        2.0, "maximum correction weight of stale steps (probability now / then)", minimum=0
    )
    equal_ranks: bool = config.option(
        False, "weight ranks equally, as in DD-PPO; false: by their fresh steps"
    )
    target_kl: float | None = config.option(
        None, "stop after an epoch whose KL exceeds this", minimum=0
    )
    imitation_coef: float = config.option(
        0.0,
        "initial weight of the imitation loss, if there are demonstrations",
        minimum=0,
        maximum=_LARGEST_WEIGHT,
    )
    imitation_until: float = config.option(
        0.5, "fraction of training after which this weight is 0", minimum=0, maximum=1
    )

    surrogate: bool = config.option(
        True, "use the PPO surrogate loss; false: train the policy only on its teacher"
    )
    teacher_coef: float = config.option(
        0.0, "weight of the distillation loss", minimum=0, maximum=_LARGEST_WEIGHT
    )
    teacher_falls: bool = config.option(
        False, "decay this weight linearly to 0 by the end of training"
    )
    switch_weight: float = config.option(
        0.2, "weight of grip and stop in the distillation loss", minimum=0, maximum=_LARGEST_WEIGHT
    )
    smooth_coef: float = config.option(
        0.0,
        "weight of the squared change from one action to the next mean, against jitter",
        minimum=0,
        maximum=_LARGEST_WEIGHT,
    )
    auxiliary: str | None = config.option(
        None,
        "auxiliary loss of the policy's features: state (predicts the true state), cpca (CPC|A), "
        "or one of your own (default: state if auxiliary_coef is above 0, otherwise none)",
    )
    auxiliary_coef: float | None = config.option(
        None,
        "weight of the auxiliary loss (default: state 0.3, cpca 0.1)",
        minimum=0,
        maximum=_LARGEST_WEIGHT,
    )

    @property
    def norm_limit(self) -> float:
        """Maximum gradient norm, infinite for none."""
        return self.max_grad_norm or math.inf

    @property
    def auxiliary_name(self) -> str | None:
        """Name of the auxiliary loss, None for none."""
        return self.auxiliary or (_STATE if self.auxiliary_coef else None)

    def check(self, prefix: str = "") -> None:
        """Checks that the settings are consistent.

        Args:
            prefix: prefix of field names in errors

        Raises:
            UserError: a rate or coefficient is outside its bounds, the bounds are in the wrong
                order, an auxiliary loss has weight 0, or a setting contradicts the optimizer or
                schedule. The bounds of the entropy coefficient are not checked without an entropy
                bonus.
        """
        if self.auxiliary and self.auxiliary_coef == 0.0:
            raise UserError(
                f"{prefix}auxiliary_coef: 0 switches {self.auxiliary} off; set it above 0, or "
                f"{prefix}auxiliary=null"
            )
        low, rate, high = self.rate_min, self.learning_rate, self.rate_max
        if self.schedule == "adaptive" and not low <= rate <= high:
            raise UserError(
                f"{prefix}learning_rate: {rate} is not between {low} and {high} ({prefix}rate_min "
                f"and {prefix}rate_max)"
            )
        if self.schedule == "adaptive" and self.base_batch:
            raise UserError(
                f"{prefix}base_batch: contradicts {prefix}schedule=adaptive; set it to 0, or the "
                "schedule to constant"
            )
        if self.optimizer == "adam" and self.weight_decay:
            raise UserError(
                f"{prefix}weight_decay: {self.weight_decay} needs {prefix}optimizer=lamb; with "
                "adam it must be 0"
            )
        low, initial, high = self.entropy_min, self.entropy_coef, self.entropy_max
        if initial > 0.0 and low > high:
            raise UserError(f"{prefix}entropy_min: {low} is above {prefix}entropy_max, {high}")
        if initial > 0.0 and self.entropy_learned and not low <= initial <= high:
            raise UserError(
                f"{prefix}entropy_coef: {initial} is not between {low} and {high} "
                f"({prefix}entropy_min and {prefix}entropy_max)"
            )
