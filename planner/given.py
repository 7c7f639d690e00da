"""Plans from files, such as those of other planners, checked step by step."""

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

_MOST_BYTES = 2**20  # maximum bytes of a plan file; this planner's have a thousand
_TIME = re.compile(r"[\d.]+:|\[[\d.]+\]")  # start time and duration of a step, in VAL's format


def follow(
    source: SourceText,
    problem: Problem,
    domain: Path,
    carried_out_by: Mapping[str, str] | None = None,
) -> Plan:
    """Returns the plan of a file with lines `(ACTION ENTITY ...)`; case and comments are ignored.

    `carried_out_by` names the skill for some actions, where several skills can carry them out.

    Raises:
        UserError: a step is malformed, or names an unknown action or entity.
        RunError: a step's precondition does not hold, or the goal does not hold at the end.
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
    """Reads the text of a plan file.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        return SourceText(files.read_text(path, _MOST_BYTES), f"plan: {path}")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise UserError(f"plan: cannot read {path} ({reason})") from None


def searched_or_read(
    problem: Problem,
    domain: Path,
    carried_out_by: Mapping[str, str] | None = None,
    path: Path | None = None,
) -> Plan:
    """Returns the plan of the file `path`, or without a path the plan found by search.

    Raises:
        UserError: see `follow`, `read` and `planner.search.plan`.
        RunError: see `follow`.
    """
    if path is None:
        return plan(problem, domain, carried_out_by)
    return follow(read(path), problem, domain, carried_out_by)


def plan_text(given: Plan) -> str:
    """Formats a plan as text that `follow` and other tools can read."""
    return "".join(f"({' '.join((step.action, *step.args))})\n" for step in given)


def _steps(source: SourceText) -> Iterator[Bracket]:
    for node in source.read():
        if isinstance(node, Bracket) and node.head:
            yield node
        elif isinstance(node, Bracket) or not _TIME.fullmatch(node.text):
            raise source.error(node, "expected a step such as (pick obj_0_024_bowl robot_0)")


class _Binding(VariableBinder):
    """Fixed choice of entities for the parameters of an action."""

    def __init__(self, binding: dict[str, str]) -> None:
        self._binding = binding

    def bind(self, dp: EpisodeProblem, operator: Operator) -> Iterator[dict[str, str]]:
        """Yields the fixed choice only."""
        yield self._binding


def _action(source: SourceText, bracket: Bracket, parsed: EpisodeProblem) -> tuple[Operator, Atom]:
    """Returns the grounded action of a step, and its entities."""
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
