"""What the linter says."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: its code, where it is, what it is, and what to change.

    An "error" is a definition that cannot do what it says: a plan that cannot be carried out, a
    stage that is never reached, a domain for which search finds such plans. A "warning" is one
    that judges otherwise than its reader expects.
    """

    code: str
    level: Literal["error", "warning"]
    where: str
    problem: str
    change: str

    def text(self) -> str:
        """The finding for people, three lines."""
        return (
            f"{self.level:<7} {self.code}: {self.where}\n"
            f"          {self.problem}\n"
            f"          change: {self.change}"
        )
