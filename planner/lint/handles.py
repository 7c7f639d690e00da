"""Linter: checks that handles and receptacles of a definition agree."""

from collections.abc import Iterator

from planner.definition import Definition
from planner.lint.finding import Finding
from planner.predicates import Atom, text


def check_handles(definition: Definition) -> Iterator[Finding]:
    """Yields facts and steps that use a handle which does not open the receptacle of the object.

    Only the moving links of handle and receptacle are compared, not their names.
    """
    named = [("init", atom) for atom in definition.init if atom[0] == "in"]
    named += [(f"step {n + 1}", atom) for n, atom in enumerate(definition.steps)]
    for where, atom in named:
        for handle, thing in misplaced(definition, atom):
            opened, place = definition.handles[handle], definition.contents[thing]
            inside = ", ".join(opened.receptacles) or "no receptacle"
            yield Finding(
                "handle-and-receptacle-differ",
                "error",
                f"{where}, {text(atom)}",
                f"{handle} moves link {opened.link}, which opens {inside}; {thing} is in {place}",
                f"use {_right_handle(definition, place)} instead, or move {thing}",
            )


def misplaced(definition: Definition, atom: Atom) -> list[tuple[str, str]]:
    """Returns (handle, object or goal) of an atom where the handle does not open the receptacle."""
    handles = [term for term in atom[1:] if term in definition.handles]
    things = [term for term in atom[1:] if term in definition.contents]
    return [
        (handle, thing)
        for handle in handles
        for thing in things
        if definition.contents[thing] not in definition.handles[handle].receptacles
    ]


def _right_handle(definition: Definition, place: str) -> str:
    right = [name for name, h in definition.handles.items() if place in h.receptacles]
    return right[0] if right else "another handle"
