"""Linter: checks of a definition's plan, step by step."""

from collections.abc import Iterator

from planner.conditions import Clause
from planner.lint.finding import Finding
from planner.lint.handles import misplaced
from planner.lint.replay import Replay, Taken, ground_actions
from planner.plan import clause_text
from planner.predicates import Atom, text


def check_steps(played: Replay) -> Iterator[Finding]:
    """Checks preconditions, closed receptacles, missing navigation, and the goal at the end."""
    for step in played.steps:
        opening = _opened_just_before(played, step)
        if opening is not None:
            yield Finding(
                "no-navigation-after-opening",
                "warning",
                step.where,
                f"follows {text(opening.atom)} without navigating to {step.atom[1]}: the robot "
                "picks from its position at the opening, which is possible only within the "
                f"{played.definition.predicates.robot_at_m:g} m of robot_at",
                f"navigate to {step.atom[1]} between the two steps",
            )
        for thing, closed in _shut(step):
            yield Finding(
                "closed-receptacle",
                "error",
                step.where,
                f"{thing} is in {closed[1]} and {text(closed)} holds",
                f"open {closed[1]} before this step",
            )
        yield from _unmet(played, step, opening)
    if not played.steps:
        yield Finding(
            "goal-holds-at-start",
            "warning",
            "plan",
            "the goal holds at the start, so an episode succeeds without any action",
            "choose goals away from the starts, or leave the episode out",
        )
    missing = [text(atom) for atom in played.definition.goal if atom not in played.facts[-1]]
    if missing:
        yield Finding(
            "goal-not-reached",
            "error",
            "plan",
            f"{' and '.join(missing)} does not hold at the end",
            "add the steps that achieve it",
        )


def _unmet(played: Replay, step: Taken, opening: Taken | None) -> Iterator[Finding]:
    """Yields unmet preconditions that no other finding explains."""
    for clause in step.unmet:
        atoms = [literal.atom for literal in clause]
        explained = (
            (opening is not None and any(atom[0] == "robot_at" for atom in atoms[:1]))
            or any(atom[0].startswith("closed") and atom in step.before for atom in atoms)
            or any(misplaced(played.definition, atom) for atom in atoms)
        )
        if not explained:
            yield Finding(
                "precondition",
                "error",
                step.where,
                f"{clause_text(clause)} is required and does not hold",
                f"add a step that achieves it{_maker(played, clause)}",
            )


def _maker(played: Replay, clause: Clause) -> str:
    """Returns ", such as ACTION" with an action that makes a clause true, or ""."""
    wanted = {literal.atom for literal in clause if literal.holds}
    actions = ground_actions(played.task)
    makers = [atom for atom, action in actions.items() if wanted & set(action.effect_pos)]
    return f", such as {text(makers[0])}" if makers else ""


def _opened_just_before(played: Replay, step: Taken) -> Taken | None:
    """Returns, for a pick, the step that opened its receptacle if no navigation lies in between.

    Only navigation to the object itself counts.
    """
    held = step.added("holding")
    if held is None:
        return None
    behind = {atom[2] for atom in step.before if atom[0] == "in" and atom[1] == held[1]}
    for earlier in reversed(played.steps[: step.index]):
        came = any(atom[0] == "robot_at" and atom[1] == held[1] for atom in earlier.adds)
        if came and not behind & set(earlier.atom):
            return None
        if any(a[0].startswith("opened") and a[1] in behind for a in earlier.adds - earlier.before):
            return earlier
    return None


def _shut(step: Taken) -> Iterator[tuple[str, Atom]]:
    """Yields the object or goal that a step reaches behind a closed handle, and the closed atom."""
    held, placed = step.added("holding"), step.added("object_at")
    thing = held[1] if held else placed[2] if placed else None
    handles = {atom[2] for atom in step.before if atom[0] == "in" and atom[1] == thing}
    for atom in sorted(step.before):
        if thing and atom[0].startswith("closed") and atom[1] in handles:
            yield thing, atom
