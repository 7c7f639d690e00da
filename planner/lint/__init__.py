"""Plan linter: finds errors in a scenario's definition before anything is run."""

from planner.definition import Definition
from planner.lint.actions import check_actions
from planner.lint.finding import Finding
from planner.lint.handles import check_handles
from planner.lint.replay import replay
from planner.lint.requirements import check_requirements
from planner.lint.stages import check_stages
from planner.lint.steps import check_steps
from planner.lint.tolerances import check_tolerances

__all__ = ["Finding", "describe", "lint"]


def lint(definition: Definition) -> list[Finding]:
    """Returns all findings, errors first.

    Raises:
        UserError: the domain is malformed, or the definition names an unknown predicate, entity or
            action.
    """
    played = replay(definition)
    findings = [
        *check_requirements(definition),
        *check_actions(definition),
        *check_handles(definition),
        *check_steps(played),
        *check_stages(played),
        *check_tolerances(played),
    ]
    return sorted(findings, key=lambda finding: finding.level != "error")


def describe(definition: Definition, findings: list[Finding]) -> str:
    """Formats the findings as text."""
    title = f"lint of {definition.name} with {definition.domain.name}: "
    if not findings:
        return title + "no findings"
    errors = sum(finding.level == "error" for finding in findings)
    warnings = len(findings) - errors
    counts = [(errors, "error"), (warnings, "warning")]
    totals = [f"{count} {word}{'s' if count > 1 else ''}" for count, word in counts if count]
    return "\n".join([title + ", ".join(totals), *(finding.text() for finding in findings)])
