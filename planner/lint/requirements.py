"""Whether a domain declares the requirements that it uses."""

from collections.abc import Iterator

from planner.definition import Definition
from planner.grounding import domain_file
from planner.lint.finding import Finding


def check_requirements(definition: Definition) -> Iterator[Finding]:
    """Requirements that other planners need to be told of; ours reads the domain all the same."""
    for requirement, line in domain_file(definition.domain).domain.undeclared.items():
        yield Finding(
            "requirement-not-declared",
            "warning",
            f"domain {definition.domain.name}, line {line}",
            f"uses {requirement} without declaring it; other planners may refuse the domain",
            f"add to the domain: (:requirements {requirement})",
        )
