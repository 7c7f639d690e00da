"""When one run of a skill is cut short."""

import dataclasses
from typing import Any

from tpsrl import config


@dataclasses.dataclass(frozen=True, slots=True)
class SkillLimits:
    """Steps of 1/30 s, and newtons, of one run of a skill; None: no limit of its own.

    Beyond a limit on force the skill has failed, and the plan goes on. A skill whose end is
    judged differently by protocol adds fields that its `TaskSettings` have too.
    """

    steps: int = config.option(200, "maximum number of control steps of a run", minimum=1)
    force_instant_n: float | None = config.option(None, "maximum force of a control step (N)")
    force_total_n: float | None = config.option(None, "maximum accumulated force of a run (N)")

    def exceeded(self, force_n: float, force_sum_n: float) -> bool:
        """Whether the force of a control step, or the sum of its rises, is too much."""
        instant, total = self.force_instant_n, self.force_total_n
        return (instant is not None and force_n > instant) or (
            total is not None and force_sum_n > total
        )

    def settings(self) -> dict[str, Any]:
        """The entries of `TaskSettings` that they stand for."""
        found = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {"horizon": found.pop("steps"), **found}
