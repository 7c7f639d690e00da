"""Linter: checks of named stage goals against the goal and the plan."""

import re
from collections.abc import Iterator

from planner.lint.finding import Finding
from planner.lint.replay import Replay
from planner.predicates import Atom, text

_HAND = ("holding", "not_holding")


def check_stages(played: Replay) -> Iterator[Finding]:
    """Checks that stages cover goal and plan, then each stage alone and among the others."""
    yield from _coverage(played)
    for name, atoms in played.definition.stages.items():
        yield from _hand(played, name, atoms)
        yield from _name(name, atoms)
    yield from _reach(played)
    yield from _duplicates(played)


def _coverage(played: Replay) -> Iterator[Finding]:
    """Checks that the last stage is the goal, and that each object has a stage in the hand.

    Atoms about the hand in the last stage are left to `_hand`.
    """
    definition = played.definition
    if not definition.stages:
        return
    last, atoms = list(definition.stages.items())[-1]
    lacking = [a for a in definition.goal if a not in atoms and a[0] not in _HAND]
    if lacking:
        yield Finding(
            "goal-not-covered",
            "error",
            f"stage {last}",
            f"the last stage lacks {_listed(lacking)} of the goal",
            "add it to the last stage, or add a stage that is the whole goal",
        )
    staged = {atom for atoms in definition.stages.values() for atom in atoms}
    wanted = {atom[1] for atom in definition.goal if atom[0] == "object_at"}
    for step in played.steps:
        held = step.added("holding")
        if held and held[1] in wanted and held not in staged:
            yield Finding(
                "missing-stage",
                "warning",
                step.where,
                f"no stage requires {text(held)}, so a failed pick is attributed to placing",
                f"add a stage with {text(held)} before the stage in which the object is placed",
            )


def _hand(played: Replay, name: str, atoms: tuple[Atom, ...]) -> Iterator[Finding]:
    if any(atom[0] in _HAND for atom in atoms) or not any(a[0] == "object_at" for a in atoms):
        return
    empty = [atom for atom in played.definition.goal if atom[0] == "not_holding"]
    yield Finding(
        "stage-without-not-holding",
        "warning",
        f"stage {name}",
        f"passes while the object is still in the hand within "
        f"{played.definition.predicates.object_at_m:g} m of its goal",
        f"add {_listed(empty) or 'not_holding'}",
    )


def _name(name: str, atoms: tuple[Atom, ...]) -> Iterator[Finding]:
    """Checks the benchmark's names: "stage_K" has K placed objects, "stage_K_5" another in hand."""
    match = re.fullmatch(r"stage_(\d+)(_5)?", name)
    placed = sum(atom[0] == "object_at" for atom in atoms)
    held = sum(atom[0] == "holding" for atom in atoms)
    if match is None or (int(match[1]), int(bool(match[2]))) == (placed, held):
        return
    hand = " and one in the hand" if match[2] else ""
    proper = f"stage_{placed}{'_5' if held else ''}"
    yield Finding(
        "stage-name",
        "warning",
        f"stage {name}",
        f"the name implies {match[1]} placed{hand}; the stage requires {placed} placed"
        f"{' and one in the hand' if held else ''}",
        f"rename it to {proper}",
    )


def _reach(played: Replay) -> Iterator[Finding]:
    """Checks that the plan reaches every stage, in order."""
    latest, before = 0, ""
    for name, atoms in played.definition.stages.items():
        when = [n for n, facts in enumerate(played.facts) if facts >= set(atoms)]
        if not when:
            yield Finding(
                "unreachable-stage",
                "error",
                f"stage {name}",
                f"its atoms never hold together during the plan: {_listed(list(atoms))}",
                "remove atoms that exclude each other, or add the steps that achieve them",
            )
        elif when[-1] < latest:
            yield Finding(
                "stage-order",
                "error",
                f"stage {name}",
                f"no longer holds when the plan reaches {before}, which is listed before it",
                f"list it before {before}",
            )
        else:
            latest, before = max(latest, when[0]), name


def _duplicates(played: Replay) -> Iterator[Finding]:
    seen: list[tuple[str, frozenset[Atom]]] = []
    for name, atoms in played.definition.stages.items():
        same = next((other for other, earlier in seen if earlier >= set(atoms)), None)
        if same is not None:
            yield Finding(
                "duplicate-stage",
                "warning",
                f"stage {name}",
                f"holds whenever {same} holds, so it is redundant",
                "remove it, or add atoms that distinguish it",
            )
        seen.append((name, frozenset(atoms)))


def _listed(atoms: list[Atom]) -> str:
    return " and ".join(text(atom) for atom in atoms)
