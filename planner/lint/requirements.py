"""Linter: requirements that a domain uses without declaring them."""

from collections.abc import Iterator

from planner.definition import Definition
from planner.grounding import domain_file
from planner.lint.finding import Finding


def check_requirements(definition: Definition) -> Iterator[Finding]:
    """Yields undeclared requirements, which this parser accepts but other planners may need."""
    for requirement, line in domain_file(definition.domain).domain.undeclared.items():
        yield Finding(
            "requirement-not-declared",
            "warning",
            f"domain {definition.domain.name}, line {line}",
            f"uses {requirement} without declaring it; other planners may reject the domain",
            f"add to the domain: (:requirements {requirement})",
        )
