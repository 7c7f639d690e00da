"""Limits on one run of a skill."""

import dataclasses
from typing import Any

from tpsrl import config


@dataclasses.dataclass(frozen=True, slots=True)
class SkillLimits:
    """Limits on one run of a skill: control steps of 1/30 s, forces in newtons (None: no limit).

    If a limit on force is exceeded, the skill has failed, and the plan goes on. A skill whose
    termination depends on the protocol adds fields that its `TaskSettings` have too.
    """

    steps: int = config.option(200, "maximum number of control steps of a run", minimum=1)
    force_instant_n: float | None = config.option(None, "maximum force of a control step (N)")
    force_total_n: float | None = config.option(None, "maximum accumulated force of a run (N)")

    def exceeded(self, force_n: float, force_sum_n: float) -> bool:
        """Returns whether a force limit is exceeded.

        Args:
            force_n: force of the control step
            force_sum_n: sum of the increases of force since the run began
        """
        instant, total = self.force_instant_n, self.force_total_n
        return (instant is not None and force_n > instant) or (
            total is not None and force_sum_n > total
        )

    def settings(self) -> dict[str, Any]:
        """Returns the limits as entries of `TaskSettings`, with `steps` as `horizon`."""
        found = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {"horizon": found.pop("steps"), **found}
