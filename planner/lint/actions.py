"""Linter: checks whether a domain's actions allow what a robot cannot do.

Actions are classified by their effects, not their names: one that adds `robot_at` navigates, one
that adds `holding` picks, one that adds `object_at` places, one that adds `opened_*` or `closed_*`
moves a handle.
"""

from collections.abc import Iterator

from pddlpy.pddl import Operator

from planner.conditions import clauses, fired_effects, satisfied
from planner.definition import Definition
from planner.entities import ROBOT_TYPE
from planner.grounding import problem_text
from planner.lint.finding import Finding
from planner.lint.replay import ground_actions, grounded
from planner.predicates import Atom


def check_actions(definition: Definition) -> Iterator[Finding]:
    """Checks that navigation leaves the last place, hands are free, and receptacles are open."""
    actions = _instances(definition)
    where = f"domain {definition.domain.name}, "
    stays = _names(name for name, action in actions if _stays_everywhere(action, actions))
    if stays:
        yield Finding(
            "navigation-deletes-nothing",
            "error",
            where + stays,
            "robot_at of the previous place is not deleted, so a plan may navigate to every object "
            "first and then pick and place without moving",
            "delete every other robot_at: (forall (?other) (not (robot_at ?other ?robot)))",
        )
    shut = sorted({atom for _, action in actions for atom in _changed(action, "closed")})
    for purpose, lies in (("holding", "the object is in"), ("object_at", "the goal is in")):
        for kind in dict.fromkeys(atom[0] for atom in shut):
            closed = [atom for atom in shut if atom[0] == kind]
            through = _names(n for n, a in actions if _reaches_into(a, purpose, closed))
            if through:
                yield Finding(
                    "closed-not-checked",
                    "error",
                    where + through,
                    f"allowed while {lies} a receptacle with {kind}, so a plan need not open the "
                    "receptacle",
                    f"add to the precondition: (forall (?r) (not (and (in ?x ?r) ({kind} ?r))))",
                )
    careless = _names(name for name, action in actions if _ignores_hand(action))
    if careless:
        yield Finding(
            "hand-not-checked",
            "warning",
            where + careless,
            "allowed with an object in the hand, although it needs the suction cup",
            "add to the precondition: (not_holding ?robot)",
        )


def _instances(definition: Definition) -> list[tuple[Atom, Operator]]:
    """Returns the domain's actions grounded on one entity of each type, which may lie anywhere.

    The findings therefore concern the domain, independently of the scenario.
    """
    paired = next((atom[1:] for atom in definition.init if atom[0] == "goal_of"), ())
    chosen: dict[str, str] = {}
    for name in (*paired, *definition.entities):
        chosen.setdefault(definition.entities[name], name)
    things = [name for kind, name in chosen.items() if kind != ROBOT_TYPE]
    init: list[Atom] = [("in", thing, handle) for thing in things for handle in definition.handles]
    init += [("goal_of", *paired)] if paired else []
    objects = [(name, kind) for kind, name in chosen.items()]
    task = grounded(problem_text("lint", objects, init, (), "lint"), definition.domain)
    return list(ground_actions(task).items())


def _stays_everywhere(action: Operator, actions: list[tuple[Atom, Operator]]) -> bool:
    """Returns whether a navigation also leaves the robot at its previous place."""
    here = _changed(action, "robot_at")
    if not any(atom in here for atom in action.effect_pos):
        return False
    elsewhere = (
        atom
        for _, other in actions
        for atom in other.effect_pos
        if atom[0] == "robot_at" and atom not in here
    )
    start = next((tuple(atom) for atom in elsewhere), None)
    if start is None:
        return not any(atom[0] == "robot_at" for atom in action.effect_neg)
    return start not in fired_effects(action, frozenset([start]))[1]


def _reaches_into(action: Operator, purpose: str, closed: list[Atom]) -> bool:
    """Returns whether an action can reach its object or goal behind a closed handle."""
    made = [atom for atom in action.effect_pos if atom[0] == purpose]
    if not made:
        return False
    thing = made[0][1] if purpose == "holding" else made[0][2]
    return any(
        _applicable(action, {("in", thing, handle), (kind, handle)}) for kind, handle in closed
    )


def _applicable(action: Operator, facts: set[Atom]) -> bool:
    """Returns whether an action is applicable given `facts` and otherwise only what it requires."""
    needs = clauses(action.precondition)
    given = set(facts)
    for clause in needs:
        if not any(satisfied(literal, given) for literal in clause):
            given |= {literal.atom for literal in clause[:1] if literal.holds}
    return all(any(satisfied(literal, given) for literal in clause) for clause in needs)


def _ignores_hand(action: Operator) -> bool:
    grasps = any(atom[0].startswith(("holding", "opened", "closed")) for atom in action.effect_pos)
    needed = [clause[0] for clause in clauses(action.precondition) if len(clause) == 1]
    return grasps and not any(lit.holds and lit.atom[0] == "not_holding" for lit in needed)


def _changed(action: Operator, prefix: str) -> set[Atom]:
    """Returns the atoms of a predicate that an action adds; for handles, also deletes."""
    if prefix == "robot_at":
        return {tuple(atom) for atom in action.effect_pos if atom[0] == prefix}
    both = {tuple(atom) for atom in (*action.effect_pos, *action.effect_neg)}
    return {atom for atom in both if atom[0].startswith(prefix)}


def _names(atoms: Iterator[Atom]) -> str:
    return ", ".join(dict.fromkeys(atom[0] for atom in atoms))
