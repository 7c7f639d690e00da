"""What preemption can be told."""

import dataclasses

from tpsrl.errors import UserError, unknown

RULES = ("none", "share", "optimal", "marginal")


@dataclasses.dataclass(frozen=True, slots=True)
class PreemptionSettings:
    """Which rule, of `RULES`; `share` of the ranks; the `least` share of a rollout to collect."""

    rule: str = "none"
    share: float = 0.6
    least: float = 0.25

    def check(self, prefix: str = "") -> None:
        """Refuses what is out of range; `prefix` stands before the names of fields.

        Raises:
            UserError: names the field.
        """
        if self.rule not in RULES:
            raise unknown(f"{prefix}preempt", self.rule, RULES)
        for name, value in (("share", self.share), ("least", self.least)):
            if not 0.0 < value <= 1.0:
                raise UserError(
                    f"{prefix}preempt_{name}: must be above 0 and at most 1, got {value}"
                )
