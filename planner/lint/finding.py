"""Findings of the plan linter."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One finding: its code, position, problem, and suggested change.

    An "error" is a definition that cannot work: a plan that cannot be carried out, a stage that is
    never reached, a domain for which search finds such plans. A "warning" is a definition whose
    results differ from what its reader expects.
    """

    code: str
    level: Literal["error", "warning"]
    where: str
    problem: str
    change: str

    def text(self) -> str:
        """Formats the finding in three lines."""
        return (
            f"{self.level:<7} {self.code}: {self.where}\n"
            f"          {self.problem}\n"
            f"          change: {self.change}"
        )
