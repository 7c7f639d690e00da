"""Settings of preemption."""

import dataclasses

from tpsrl.errors import UserError, unknown

RULES = ("none", "share", "optimal", "marginal")


@dataclasses.dataclass(frozen=True, slots=True)
class PreemptionSettings:
    """Settings of the preemption of slow ranks.

    `rule` is one of `RULES`. `share` is the fraction of ranks with whole rollouts at which the rule
    "share" stops the others; `least` is the minimum fraction of a rollout that a rank collects.
    """

    rule: str = "none"
    share: float = 0.6
    least: float = 0.25

    def check(self, prefix: str = "") -> None:
        """Checks that the values are in range; `prefix` precedes field names in messages.

        Raises:
            UserError: a value is out of range; names the field.
        """
        if self.rule not in RULES:
            raise unknown(f"{prefix}preempt", self.rule, RULES)
        for name, value in (("share", self.share), ("least", self.least)):
            if not 0.0 < value <= 1.0:
                raise UserError(
                    f"{prefix}preempt_{name}: must be above 0 and at most 1, got {value}"
                )
