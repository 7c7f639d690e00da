"""Plans from files, as other planners write them, followed step by step."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pddlpy.binding import VariableBinder
from pddlpy.pddl import Operator
from pddlpy.planning import GroundedTask, State

from planner.conditions import clauses, satisfied
from planner.grounding import EpisodeProblem, read_problem
from planner.pddl.source import Bracket, Node, SourceText, Word
from planner.plan import Plan, PlanStep, clause_text, make_step
from planner.predicates import Atom, text
from planner.problem import Problem
from planner.search import plan, reachable_atoms
from tpsrl.errors import RunError, UserError
from tpsrl.runtime import files

_MOST_BYTES = 2**20  # of a plan file; plans of ours have a thousand
_TIME = re.compile(r"[\d.]+:|\[[\d.]+\]")  # of a step and its duration, as VAL has them


def follow(
    source: SourceText,
    problem: Problem,
    domain: Path,
    carried_out_by: Mapping[str, str] | None = None,
) -> Plan:
    """The plan of a file with lines `(ACTION ENTITY ...)`, in any case, with comments after ";".

    `carried_out_by` names the skill for some actions, where several can carry them out.

    Raises:
        UserError: a step is malformed, or names an action or entity that there is not.
        RunError: a step's precondition does not hold, or the goal does not in the end.
    """
    parsed = read_problem(problem.text(), domain)
    reachable = reachable_atoms(GroundedTask(parsed))
    state = State.from_problem(parsed)
    steps: list[PlanStep] = []
    for bracket in _steps(source):
        action, terms = _action(source, bracket, parsed)
        for clause in clauses(action.precondition):
            if not any(satisfied(literal, state.atoms) for literal in clause):
                step = f"step {len(steps) + 1}, {text((bracket.head, *terms))}"
                failed = source.error(bracket, f"{step}, needs {clause_text(clause)}")
                raise RunError(str(failed))
        facts = (state.atoms, reachable)
        steps.append(make_step(len(steps), action, terms, facts, carried_out_by))
        state = state.apply(action)
    for atom in problem.goal:
        if atom not in state.atoms:
            after = f"after all {len(steps)} steps" if steps else "at the start"
            raise RunError(f"{source.called}: the goal {text(atom)} does not hold {after}")
    return Plan(steps, problem)


def read(path: Path) -> SourceText:
    """The text of a plan's file.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return SourceText(files.read_text(path, _MOST_BYTES), f"plan: {path}")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UserError(f"plan: cannot read {path} ({reason})") from None


def searched_or_read(
    problem: Problem,
    domain: Path,
    carried_out_by: Mapping[str, str] | None = None,
    path: Path | None = None,
) -> Plan:
    """The plan of a file, or without one the plan that search finds.

    Raises:
        UserError: see `follow`, `read` and `planner.search.plan`.
        RunError: see `follow`.
    """
    if path is None:
        return plan(problem, domain, carried_out_by)
    return follow(read(path), problem, domain, carried_out_by)


def plan_text(given: Plan) -> str:
    """A plan as `follow` and other tools read it."""
    return "".join(f"({' '.join((step.action, *step.args))})\n" for step in given)


def _steps(source: SourceText) -> Iterator[Bracket]:
    for node in source.read():
        if isinstance(node, Bracket) and node.head:
            yield node
        elif isinstance(node, Bracket) or not _TIME.fullmatch(node.text):
            raise source.error(node, "expected a step as in (pick obj_0_024_bowl robot_0)")


class _Binding(VariableBinder):
    """One choice of entities for the parameters of an action."""

    def __init__(self, binding: dict[str, str]) -> None:
        self._binding = binding

    def bind(self, dp: EpisodeProblem, operator: Operator) -> Iterator[dict[str, str]]:
        """That choice."""
        yield self._binding


def _action(source: SourceText, bracket: Bracket, parsed: EpisodeProblem) -> tuple[Operator, Atom]:
    """The grounded action of a step, and its entities."""
    name, nodes = bracket.head, bracket.items[1:]
    operators = parsed.domain.operators
    if name not in operators:
        raise source.unknown(bracket, "action", name, operators)
    parameters = operators[name].variable_list
    if len(nodes) != len(parameters):
        why = f"{name} takes {len(parameters)} entities, {len(nodes)} given"
        raise source.error(bracket, why)
    kinds = parameters.values()
    terms = tuple(_term(source, n, kind, parsed) for n, kind in zip(nodes, kinds, strict=True))
    parsed.binder = _Binding(dict(zip(parameters, terms, strict=True)))
    return next(parsed.ground_operator(name)), terms


def _term(source: SourceText, node: Node, kind: str, parsed: EpisodeProblem) -> str:
    if not isinstance(node, Word):
        raise source.error(node, "expected an entity, got a bracket")
    if node.text not in parsed.worldobjects():
        raise source.unknown(node, "entity", node.text, parsed.worldobjects())
    if node.text not in parsed.candidate_objects(kind):
        raise source.error(node, f"{node.text} must be of the type {kind}")
    return node.text
