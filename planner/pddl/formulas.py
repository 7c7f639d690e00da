"""Conditions and effects of one action, from text to pddlpy's trees."""

import re
from collections.abc import Mapping, Sequence

from pddlpy import pddl

from planner.pddl.source import Bracket, Node, SourceText, Word
from planner.pddl.vocabulary import Declared, Vocabulary
from tpsrl.errors import UserError

Scope = Mapping[str, str]  # the visible variables, with their names in the tree

_CONNECTIVES = {"and": pddl.And, "or": pddl.Or}
_QUANTIFIERS = {"forall": pddl.Forall, "exists": pddl.Exists}
_COMPARISONS = (">", "<", ">=", "<=")
_ASSIGNMENTS = ("increase", "decrease", "assign", "scale-up", "scale-down")
_OF_CHANCE = ("oneof", "probabilistic")
_ARITHMETIC = ("+", "-", "*", "/")
_NUMBER = re.compile(r"-?\d+(\.\d*)?")
_REQUIRED = {
    "or": ":disjunctive-preconditions",
    "imply": ":disjunctive-preconditions",
    "not": ":negative-preconditions",
    "forall": ":universal-preconditions",
    "exists": ":existential-preconditions",
    "=": ":equality",
}


class Formulas:
    """Parser of the conditions and effects of an action; errors name the action."""

    def __init__(self, source: SourceText, vocabulary: Vocabulary, action: str) -> None:
        self._source = source
        self._vocabulary = vocabulary
        self._action = action

    def condition(self, node: Node, scope: Scope) -> pddl.Condition:
        """Parses a condition of an action or an effect.

        Raises:
            UserError: the condition is malformed, or uses unknown or unsupported features.
        """
        bracket = self._bracket(node, "a condition")
        head, parts = bracket.head, bracket.items[1:]
        if head in _REQUIRED:
            self._vocabulary.use(_REQUIRED[head], node)
        if head in _CONNECTIVES:
            return _CONNECTIVES[head]([self.condition(part, scope) for part in parts])
        if head == "not":
            self._count(bracket, 1, "condition")
            return pddl.Not(self.condition(parts[0], scope))
        if head == "imply":
            self._count(bracket, 2, "condition")
            reason, consequence = (self.condition(part, scope) for part in parts)
            return pddl.Or([pddl.Not(reason), consequence])
        if head in _QUANTIFIERS:
            self._count(bracket, 2, "part")
            variables, inner = self._quantified(parts[0], scope)
            return _QUANTIFIERS[head](variables, self.condition(parts[1], inner))
        if head in _COMPARISONS or (head == "=" and any(map(self._is_number, parts))):
            raise self.error(node, "numeric comparisons are not supported")
        if head == "=":
            self._count(bracket, 2, "term")
            return pddl.Equality(*(self._term(part, scope) for part in parts))
        if head == "preference":
            raise self.error(node, "preferences are not supported")
        return pddl.Lit(self._atom(bracket, self._vocabulary.predicates, "predicate", scope))

    def effects(
        self, node: Node, scope: Scope, guards: Sequence[pddl.Condition] = ()
    ) -> list[pddl.Effect]:
        """Parses the parts of an effect that happen where all `guards` hold.

        Changes of a function's value, such as the cost of a plan, are checked and ignored.

        Raises:
            UserError: the effect is malformed, or uses unknown or unsupported features.
        """
        bracket = self._bracket(node, "an effect")
        head, parts = bracket.head, bracket.items[1:]
        if head == "and":
            return [effect for part in parts for effect in self.effects(part, scope, guards)]
        if head == "when":
            self._vocabulary.use(":conditional-effects", node)
            self._count(bracket, 2, "part")
            return self.effects(parts[1], scope, [*guards, self.condition(parts[0], scope)])
        if head == "forall":
            self._vocabulary.use(":conditional-effects", node)
            self._count(bracket, 2, "part")
            variables, inner = self._quantified(parts[0], scope)
            return [pddl.Universal(variables, pddl.EffAnd(self.effects(parts[1], inner, guards)))]
        if head in _ASSIGNMENTS:
            self._count(bracket, 2, "part")
            self._value(parts[0], scope)
            self._value(parts[1], scope)
            return []
        if head in _OF_CHANCE:
            raise self.error(node, f"'{head}': probabilistic effects are not supported")
        adds = head != "not"
        if not adds:
            self._count(bracket, 1, "atom")
            bracket = self._bracket(parts[0], "an atom")
        atom = self._atom(bracket, self._vocabulary.predicates, "predicate", scope)
        change = pddl.AddDel(atom, adds)
        if not guards:
            return [change]
        return [pddl.When(guards[0] if len(guards) == 1 else pddl.And(guards), change)]

    def error(self, at: Node, why: str) -> UserError:
        """Returns an error at a node of the action."""
        return self._source.error(at, f"action '{self._action}': {why}")

    def _bracket(self, node: Node, what: str) -> Bracket:
        if isinstance(node, Word):
            raise self.error(node, f"expected {what} in brackets, got '{node.text}'")
        if not node.items:
            raise self.error(node, f"expected {what}, got an empty bracket")
        return node

    def _count(self, bracket: Bracket, expected: int, what: str) -> None:
        given = len(bracket.items) - 1
        if given != expected:
            plural = "s" if expected > 1 else ""
            raise self.error(
                bracket, f"'{bracket.head}' takes {expected} {what}{plural}, {given} given"
            )

    def _quantified(self, node: Node, scope: Scope) -> tuple[dict[str, str], Scope]:
        """Returns the variables of a quantifier with their types, and the scope of its body.

        A variable that shadows one of an enclosing scope is renamed in the tree.
        """
        names, types = dict(scope), {}
        for name, kind in self._vocabulary.variables(node).items():
            names[name] = f"{scope[name]}'" if name in scope else name
            types[names[name]] = kind
        return types, names

    def _atom(
        self, bracket: Bracket, known: Mapping[str, Declared], what: str, scope: Scope
    ) -> pddl.Atom:
        name = bracket.head
        if name not in known:
            self._source.name(bracket.items[0], f"a {what}")
            raise self._source.unknown(
                bracket.items[0], f"action '{self._action}': {what}", name, known
            )
        given, expected = len(bracket.items) - 1, known[name].terms
        if given != expected:
            noun = "entity" if expected == 1 else "entities"
            line = self._source.line(known[name].at)
            why = f"{name} takes {expected} {noun}, {given} given (declared in line {line})"
            raise self.error(bracket, why)
        return pddl.Atom([name, *(self._term(term, scope) for term in bracket.items[1:])])

    def _term(self, node: Node, scope: Scope) -> str:
        if not isinstance(node, Word):
            raise self.error(node, "expected a parameter or constant, got a bracket")
        if node.text in scope:
            return scope[node.text]
        if node.text.startswith("?"):
            raise self.error(node, f"{node.text} is not one of its parameters")
        constants = self._vocabulary.constants
        if node.text not in constants:
            what = f"action '{self._action}': constant"
            raise self._source.unknown(node, what, node.text, constants)
        return node.text

    def _is_number(self, node: Node) -> bool:
        return isinstance(node, Bracket) or _NUMBER.fullmatch(node.text) is not None

    def _value(self, node: Node, scope: Scope) -> None:
        """Checks a number, a function, or an arithmetic expression of these."""
        if isinstance(node, Word) and node.text not in self._vocabulary.functions:
            if not _NUMBER.fullmatch(node.text):
                raise self.error(node, f"expected a number, got '{node.text}'")
        elif isinstance(node, Bracket) and node.head in _ARITHMETIC:
            for part in node.items[1:]:
                self._value(part, scope)
        elif isinstance(node, Bracket):
            bracket = self._bracket(node, "a function")
            self._atom(bracket, self._vocabulary.functions, "function", scope)
