"""Plans: steps with preconditions and effects, and the causal links between them."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pddlpy.pddl import Operator

from planner.conditions import Clause, clauses, fired_effects
from planner.entities import GOAL, Entities, Entity, short_name
from planner.predicates import Atom, text
from planner.problem import Problem
from planner.structure import renamed
from skills import registry
from skills.core.interface import SkillGoal
from skills.spec import Referent
from tpsrl.errors import UserError
from tpsrl.world.state import WorldState

# The purpose of an action is its first added atom in this order; among equals, the atom that
# contains the action's first argument.
_PURPOSE = ("object_at", "holding", "robot_at", "opened", "closed", "not_holding", "in")


@dataclasses.dataclass(frozen=True, slots=True)
class PlanStep:
    """One action of a plan.

    `preconditions` are clauses that must all hold, without those that nothing in the problem can
    violate; `adds` are the atoms that become true, the purpose of the action first; `deletes` are
    the atoms that become false in search. Deletes are bookkeeping, not guarantees: a robot that
    drives to the next table may still be within 2 m of the last one. `takes_over` are the skills of
    steps that were removed before this one, whose work is added to its task, and whose steps to its
    limit.
    """

    index: int
    action: str
    args: tuple[str, ...]
    skill: str
    preconditions: tuple[Clause, ...]
    adds: tuple[Atom, ...]
    deletes: tuple[Atom, ...]
    takes_over: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the stage, the same in every episode: "nav obj_0", "place obj_0".

        Actions whose argument names the receptacle ("close_fridge") and those without one
        ("close_fridge_by_name") have the same stage name.
        """
        return f"{self.action.removesuffix('_by_name')} {short_name(self.args[0])}"

    @property
    def text(self) -> str:
        """Text of the action: "place(obj_0_004_sugar_box, goal_0, robot_0)"."""
        return text((self.action, *self.args))

    @property
    def purpose(self) -> Atom:
        """Atom that the action is meant to achieve."""
        return self.adds[0]


class Plan:
    """Steps in order, with a graph of their dependencies.

    `graph` has a node per step (attribute `step`), an edge from each step to the next (`order`
    True), and an edge from the step that establishes an atom to each step that needs it (a causal
    link; `atoms` lists the clauses).

    `found` is the plan as returned by search; it differs from this plan if this plan was rewritten
    for an agent (`planner.rewriting`).
    """

    def __init__(
        self, steps: Sequence[PlanStep], problem: Problem, found: "Plan | None" = None
    ) -> None:
        self.steps = tuple(steps)
        self.problem = problem
        self.found: Plan = self if found is None else found

    @functools.cached_property
    def graph(self) -> Any:
        """The plan as a `networkx.DiGraph`."""
        return _graph(self.steps)

    def __iter__(self) -> Iterator[PlanStep]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, index: int) -> PlanStep:
        return self.steps[index]

    @property
    def stages(self) -> list[str]:
        """Names of the steps."""
        return [step.name for step in self.steps]

    @functools.cached_property
    def turns(self) -> tuple[str, ...]:
        """For each step, the object whose turn it is: the one placed next, or else the last placed.

        Closing the receptacle of an object belongs to its turn. "" where the plan places nothing.
        """
        found: list[str] = []
        current = ""
        for step in self.steps:
            places = step.purpose[0] == "object_at"
            if places or step.purpose in self.problem.goal:
                current = step.purpose[1] if places else current
                found += [current] * (step.index + 1 - len(found))
        return (*found, *[current] * (len(self.steps) - len(found)))

    def describe(self) -> str:
        """Formats the plan: each step with its skill, preconditions, effects and causal links."""
        if not self.steps:
            return "empty plan: the goal already holds"
        lines = []
        for step in self.steps:
            lines.append(f"{step.index + 1:3d}. {step.text}  [{step.skill}]")
            needs = [clause_text(clause) for clause in step.preconditions] or ["nothing"]
            lines += [f"       needs   {need}{self._source(step, need)}" for need in needs]
            lines += [f"       makes   {text(atom)}" for atom in step.adds]
            lines += [f"       ends    {text(atom)}" for atom in step.deletes]
        goal = " and ".join(text(atom) for atom in self.problem.goal)
        return "\n".join([*lines, f"goal  {goal}"])

    def _source(self, step: PlanStep, need: str) -> str:
        """Returns which step a precondition comes from, or "" if it holds from the start."""
        for producer, _, link in self.graph.in_edges(step.index, data=True):
            if need in link["atoms"]:
                return f"  (from step {producer + 1})"
        return ""


def make_step(
    index: int,
    action: Operator,
    args: tuple[str, ...],
    facts: tuple[frozenset[Atom], Iterable[Atom]],
    carried_out_by: Mapping[str, str] | None = None,
) -> PlanStep:
    """Returns the plan step for pddlpy's grounded action.

    Args:
        index: index of the step in the plan
        action: grounded action
        args: entities of the action, in the order of its parameters
        facts: the atoms that hold before the step, and all reachable atoms of the problem
        carried_out_by: skill by action, for actions that several skills can carry out

    Raises:
        UserError: no skill carries out the action, or the named skill cannot; or the action makes
            nothing true at this point.
    """
    before, reachable = facts
    skill = registry.carrying_out(action.operator_name, carried_out_by)
    needed = [
        clause
        for clause in clauses(action.precondition)
        if all(literal.holds or literal.atom in reachable for literal in clause)
    ]
    adds, deletes = fired_effects(action, before)
    if not adds:
        step = f"step {index + 1}, {text((action.operator_name, *args))}"
        raise UserError(f"domain: {step}: is required, but makes no atom true at this point")
    return PlanStep(
        index=index,
        action=action.operator_name,
        args=args,
        skill=skill.name,
        **_ordered(needed, adds, deletes, args),
    )


def renamed_step(step: PlanStep, names: dict[str, str], skill: str) -> PlanStep:
    """Returns the step that `make_step` would return with renamed entities."""
    args = tuple(names[term] for term in step.args)
    needed = [
        tuple(literal._replace(atom=renamed(literal.atom, names)) for literal in clause)
        for clause in step.preconditions
    ]
    adds, deletes = ([renamed(a, names) for a in atoms] for atoms in (step.adds, step.deletes))
    return dataclasses.replace(
        step,
        args=args,
        skill=skill,
        **_ordered(needed, adds, deletes, args),
    )


def _ordered(
    needed: Iterable[Clause], adds: Iterable[Atom], deletes: Iterable[Atom], args: tuple[str, ...]
) -> dict[str, Any]:
    """Returns a step's preconditions, adds and deletes in their canonical order."""
    return {
        "preconditions": tuple(sorted(dict.fromkeys(needed), key=_clause_order)),
        "adds": tuple(sorted(adds, key=lambda atom: (*_purpose_order(atom, args), atom))),
        "deletes": tuple(sorted(deletes)),
    }


def skill_goal(step: PlanStep, entities: Entities, world: WorldState) -> SkillGoal:
    """Returns the goal of a step's skill, with positions taken from a world of batch one."""
    goal_of = registry.get(step.skill).goal_of
    assert goal_of is not None
    return goal_of([_referent(entities[name], entities, world) for name in step.args])


def _referent(entity: Entity, entities: Entities, world: WorldState) -> Referent:
    """Converts an entity to the form that skills use."""
    x, y, z = (float(value) for value in entities.position(entity, world))
    if entity.joint >= 0:
        return Referent("handle", entity.object, entity.name, (x, y, z))
    if entity.object < 0:
        return Referent("robot", -1, "", (x, y, z))
    return Referent("goal" if entity.type == GOAL else "object", entity.object, "", (x, y, z))


def clause_text(clause: Clause) -> str:
    """Formats a clause: "not in(a, b) or not closed_cab(b)"."""
    return " or ".join(("" if lit.holds else "not ") + text(lit.atom) for lit in clause)


def _graph(steps: Sequence[PlanStep]) -> Any:
    import networkx as nx  # takes half a second, and executing a plan does not need the graph

    graph = nx.DiGraph()
    last_change: dict[Atom, int] = {}
    for step in steps:
        graph.add_node(step.index, step=step)
        if step.index > 0:
            graph.add_edge(step.index - 1, step.index, order=True, atoms=[])
        for clause in step.preconditions:
            producers = {last_change[lit.atom] for lit in clause if lit.atom in last_change}
            for producer in producers:
                if not graph.has_edge(producer, step.index):
                    graph.add_edge(producer, step.index, order=False, atoms=[])
                graph.edges[producer, step.index]["atoms"].append(clause_text(clause))
        last_change.update(dict.fromkeys([*step.adds, *step.deletes], step.index))
    return graph


def _clause_order(clause: Clause) -> tuple[bool, Clause]:
    """Sorts plain facts, in the domain's order, before the clauses expanded from quantifiers."""
    return (len(clause) > 1, clause if len(clause) > 1 else ())


def _purpose_order(atom: Atom, args: tuple[str, ...]) -> tuple[int, bool]:
    ranks = [rank for rank, name in enumerate(_PURPOSE) if atom[0].startswith(name)]
    return (min(ranks, default=len(_PURPOSE)), args[0] not in atom)
