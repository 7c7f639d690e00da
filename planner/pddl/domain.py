"""Parser of PDDL domains, by the grammar of McDermott and others (PDDL 1.2 to 3.1) without time.

Names and keywords ignore case, the default type is `object`, an absent or empty precondition always
holds, and sections may have any order. Anything outside the grammar is an error with line and
column. pddlpy's own parser ignores many such errors, so only its model is used, and filled here.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from pddlpy import pddl

from planner.pddl.formulas import Formulas
from planner.pddl.source import Bracket, Node, SourceText, Word
from planner.pddl.vocabulary import Declared, Vocabulary

_SECTIONS = (":requirements", ":types", ":constants", ":predicates", ":functions")
_UNSUPPORTED = {
    ":durative-action": "durative actions",
    ":derived": "derived predicates",
    ":axiom": "axioms",
    ":constraints": "trajectory constraints",
    ":process": "processes",
    ":event": "events",
    ":method": "methods of hierarchical task networks",
    ":task": "tasks of hierarchical task networks",
    ":timeless": "timeless facts",
    ":extends": "domains that extend another",
    ":vars": "action variables outside of :parameters",
    ":expansion": "action expansions",
    ":condition": "timed conditions",
    ":duration": "durative actions",
    ":observe": "action observations",
}
_ACTION_KEYS = (":parameters", ":precondition", ":effect")
_QUANTIFIED = (":existential-preconditions", ":universal-preconditions")
_ADL = (
    ":strips", ":typing", ":negative-preconditions", ":disjunctive-preconditions", ":equality",
    *_QUANTIFIED, ":conditional-effects",
)  # fmt: skip
# Requirements that another requirement implies.
_STANDS_FOR = {
    ":adl": _ADL,
    ":ucpop": _ADL,
    ":quantified-preconditions": _QUANTIFIED,
    ":disjunctive-preconditions": (":negative-preconditions",),
    ":fluents": (":action-costs",),
    ":numeric-fluents": (":action-costs",),
}
_KNOWN = (
    *_ADL, *_STANDS_FOR, ":action-costs", ":action-expansions", ":constraints",
    ":continuous-effects", ":derived-predicates", ":domain-axioms", ":duration-inequalities",
    ":durative-actions", ":foreach-expansions", ":goal-utilities", ":hierarchy",
    ":method-preconditions", ":multi-agent", ":non-deterministic", ":object-fluents",
    ":open-world", ":preferences", ":probabilistic-effects", ":rewards", ":safety-constraints",
    ":subgoal-through-axioms", ":time", ":timed-initial-literals", ":true-negation",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class PddlDomain:
    """Content of a domain file.

    `model` is pddlpy's model; `unions` are its types that stand for several types. `actions` and
    `predicates` hold the positions of their definitions. `undeclared` maps each requirement that
    the domain uses without declaring it to the line of its first use.
    """

    name: str
    model: pddl.DomainListener
    unions: Mapping[str, Sequence[str]]
    predicates: Mapping[str, Declared]
    actions: Mapping[str, Node]
    undeclared: Mapping[str, int]


def read_domain(source: SourceText) -> PddlDomain:
    """Parses the domain of a file.

    Raises:
        UserError: the domain is malformed, or uses unsupported features; names line and column.
    """
    name, rest = _definition(source)
    sections, actions = _sections(source, rest)
    vocabulary = Vocabulary(source)
    declared = _requirements(source, sections.get(":requirements"))
    if ":types" in sections:
        vocabulary.declare_types(sections[":types"])
    if ":constants" in sections:
        vocabulary.declare_constants(sections[":constants"])
    if ":predicates" in sections:
        vocabulary.declare_predicates(sections[":predicates"])
    if ":functions" in sections:
        vocabulary.declare_functions(sections[":functions"])
    model = pddl.DomainListener()
    model.operators = {
        action: _operator(source, vocabulary, action, bracket)
        for action, bracket in actions.items()
    }
    model.types, model.typesdef = dict(vocabulary.types), True
    model.objects = dict(vocabulary.constants)
    model.predicates = set(vocabulary.predicates)
    undeclared = {
        requirement: source.line(at)
        for requirement, at in vocabulary.uses.items()
        if requirement not in declared
    }
    return PddlDomain(name, model, vocabulary.unions, vocabulary.predicates, actions, undeclared)


def _definition(source: SourceText) -> tuple[str, Sequence[Node]]:
    """Returns the name in `(define (domain NAME) ...)`, and the nodes that follow it."""
    nodes = source.read()
    whole = next(nodes, None)
    if whole is None:
        raise source.error(0, "expected (define (domain NAME) ...), got nothing")
    if not isinstance(whole, Bracket) or whole.head != "define":
        raise source.error(whole, "expected (define (domain NAME) ...)")
    title = whole.items[1] if len(whole.items) > 1 else whole
    if isinstance(title, Bracket) and title.head == "problem":
        raise source.error(title, "expected a domain, got a problem")
    if not isinstance(title, Bracket) or title.head != "domain" or len(title.items) != 2:
        raise source.error(title, "expected (domain NAME) after 'define'")
    more = next(nodes, None)
    if more is not None:
        closed = source.line(whole.end)
        raise source.error(more, f"text after the end of 'define' in line {closed}")
    return source.name(title.items[1], "a domain"), whole.items[2:]


def _sections(
    source: SourceText, nodes: Sequence[Node]
) -> tuple[dict[str, Bracket], dict[str, Bracket]]:
    """Returns the sections by keyword, and the actions by name."""
    sections: dict[str, Bracket] = {}
    actions: dict[str, Bracket] = {}
    for node in nodes:
        if isinstance(node, Word) or not node.head:
            raise source.error(node, "expected a section in brackets, such as (:predicates ...)")
        if node.head == ":action":
            if len(node.items) < 2:
                raise source.error(node, "expected the name of an action after ':action'")
            name, known = source.name(node.items[1], "an action"), actions
            what = f"action '{name}'"
        elif node.head in _SECTIONS:
            name, known, what = node.head, sections, node.head
        elif node.head in _UNSUPPORTED:
            why = f"'{node.head}': {_UNSUPPORTED[node.head]} are not supported"
            raise source.error(node, why)
        else:
            raise source.unknown(node, "section", node.head, (*_SECTIONS, ":action"))
        if name in known:
            first = source.line(known[name])
            raise source.error(node, f"{what} is defined twice, first in line {first}")
        known[name] = node
    return sections, actions


def _requirements(source: SourceText, section: Bracket | None) -> set[str]:
    """Returns the declared requirements and those that they imply."""
    found = {":strips"}
    for node in () if section is None else section.items[1:]:
        if isinstance(node, Bracket):
            raise source.error(node, "expected a requirement, got a bracket")
        if node.text not in _KNOWN:
            raise source.unknown(node, "requirement", node.text, _KNOWN)
        found |= {node.text, *_STANDS_FOR.get(node.text, ())}
    return found


def _operator(
    source: SourceText, vocabulary: Vocabulary, name: str, bracket: Bracket
) -> pddl.Operator:
    """Returns an action as pddlpy's lifted operator."""
    formulas = Formulas(source, vocabulary, name)
    parts = _action_parts(formulas, bracket)
    action = pddl.Operator(name)
    if ":parameters" in parts:
        action.variable_list = dict(vocabulary.variables(parts[":parameters"]))
    scope = {variable: variable for variable in action.variable_list}
    condition: pddl.Condition = pddl.And([])
    if not _empty(parts.get(":precondition")):
        condition = formulas.condition(parts[":precondition"], scope)
    changes = [] if _empty(parts.get(":effect")) else formulas.effects(parts[":effect"], scope)
    action.precondition_tree, action.effect_tree = condition, pddl.EffAnd(changes)
    literals = _literals(condition)
    action.simple_conjunction = literals is not None
    action.precondition_pos = {atom for atom, holds in literals or () if holds}
    action.precondition_neg = {atom for atom, holds in literals or () if not holds}
    return action


def _action_parts(formulas: Formulas, bracket: Bracket) -> dict[str, Node]:
    """Returns the node that follows each keyword of an action."""
    parts: dict[str, Node] = {}
    rest = iter(bracket.items[2:])
    for key in rest:
        word = key.text if isinstance(key, Word) else "("
        if word in _UNSUPPORTED:
            raise formulas.error(key, f"'{word}': {_UNSUPPORTED[word]} are not supported")
        if word not in _ACTION_KEYS:
            raise formulas.error(key, f"expected {', '.join(_ACTION_KEYS)} or ')', got '{word}'")
        if word in parts:
            raise formulas.error(key, f"{word} is given twice")
        value = next(rest, None)
        if value is None:
            raise formulas.error(key, f"expected a value after '{word}'")
        parts[word] = value
    return parts


def _empty(node: Node | None) -> bool:
    return node is None or (isinstance(node, Bracket) and not node.items)


def _literals(condition: pddl.Condition) -> list[tuple[pddl.Atom, bool]] | None:
    """Returns (atom, required truth) of a conjunction of literals; None for other conditions."""
    if isinstance(condition, pddl.Lit):
        return [(condition.atom, True)]
    if isinstance(condition, pddl.Not):
        return [(condition.child.atom, False)] if isinstance(condition.child, pddl.Lit) else None
    if not isinstance(condition, pddl.And):
        return None
    parts = [_literals(child) for child in condition.children]
    if any(part is None for part in parts):
        return None
    return [literal for part in parts for literal in part or ()]
