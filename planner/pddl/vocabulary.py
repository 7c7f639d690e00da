"""Types, constants, predicates and functions declared by a domain."""

import dataclasses
from collections.abc import Sequence

from planner.pddl.source import Bracket, Node, SourceText, Word

ROOT = "object"  # default type, above all others


@dataclasses.dataclass(frozen=True, slots=True)
class Declared:
    """Declaration of a predicate or function: its number of terms and its position."""

    terms: int
    at: Node


class Vocabulary:
    """Declarations of a domain, and the requirements that it uses.

    `types` maps each type to its parent, `constants` maps constants to their types. `unions` are
    the types that stand for `(either ...)`. `uses` maps each requirement to the position of its
    first use.
    """

    def __init__(self, source: SourceText) -> None:
        self.types: dict[str, str] = {}
        self.unions: dict[str, tuple[str, ...]] = {}
        self.constants: dict[str, str] = {}
        self.predicates: dict[str, Declared] = {}
        self.functions: dict[str, Declared] = {}
        self.uses: dict[str, Node] = {}
        self._source = source

    def use(self, requirement: str, at: Node) -> None:
        """Records that a node uses a requirement."""
        self.uses.setdefault(requirement, at)

    def declare_types(self, section: Bracket) -> None:
        """Parses `(:types ...)`; a type that is named only as a parent becomes a child of `object`.

        Raises:
            UserError: a type is declared twice, or is its own ancestor.
        """
        self.use(":typing", section)
        places: dict[str, Node] = {}
        for word, kind in self._typed(section.items[1:], "a type"):
            name = self._source.name(word, "a type")
            if name in places:
                raise self._twice(word, f"type '{name}'", places[name])
            if name == ROOT and kind is not None:
                raise self._source.error(
                    word, f"'{ROOT}' is the root type and cannot have a supertype"
                )
            if isinstance(kind, Bracket):
                raise self._source.error(kind, "a type with several supertypes is not supported")
            places[name] = word
            self.types[name] = ROOT if kind is None else self._source.name(kind, "a type")
        self.types.pop(ROOT, None)
        above = [kind for kind in self.types.values() if kind not in self.types and kind != ROOT]
        self.types.update(dict.fromkeys(above, ROOT))
        for name in places:
            self._check_cycle(name, places[name])

    def _check_cycle(self, name: str, at: Node) -> None:
        path = [name]
        while (above := self.types.get(path[-1], ROOT)) != ROOT:
            path.append(above)
            if above == name:
                raise self._source.error(at, f"types in a cycle: {' - '.join(path)}")
            if above in path[:-1]:
                return  # the cycle does not contain `name`; it is reported for its members

    def declare_constants(self, section: Bracket) -> None:
        """Parses `(:constants ...)`.

        Raises:
            UserError: a constant is declared twice, or its type is unknown.
        """
        places: dict[str, Node] = {}
        for word, kind in self._typed(section.items[1:], "a constant"):
            name = self._source.name(word, "a constant")
            if name in places:
                raise self._twice(word, f"constant '{name}'", places[name])
            if isinstance(kind, Bracket):
                raise self._source.error(kind, "constants of type (either ...) are not supported")
            places[name] = word
            self.constants[name] = self._type(kind)

    def declare_predicates(self, section: Bracket) -> None:
        """Parses `(:predicates ...)`.

        Raises:
            UserError: a predicate is malformed or declared twice, or a type is unknown.
        """
        for item in section.items[1:]:
            self._declare(item, "predicate", self.predicates)

    def declare_functions(self, section: Bracket) -> None:
        """Parses `(:functions ...)`, whose values are numbers.

        Raises:
            UserError: a function is malformed or declared twice, or has another type than `number`.
        """
        self.use(":action-costs", section)
        for item, kind in self._typed(section.items[1:], "a function"):
            if kind is not None and not (isinstance(kind, Word) and kind.text == "number"):
                raise self._source.error(kind, "a function must have the type 'number'")
            self._declare(item, "function", self.functions)

    def variables(self, node: Node) -> dict[str, str]:
        """Returns the variables of a bracket with their types, in order.

        Raises:
            UserError: the bracket is malformed, a variable is repeated, or a type is unknown.
        """
        if not isinstance(node, Bracket):
            raise self._source.error(node, f"expected parameters in brackets, got '{node.text}'")
        found: dict[str, str] = {}
        for word, kind in self._typed(node.items, "a parameter"):
            if not isinstance(word, Word) or not word.text.startswith("?"):
                given = f"'{word.text}'" if isinstance(word, Word) else "a bracket"
                raise self._source.error(word, f"a parameter must begin with '?', got {given}")
            self._source.name(Word(word.text[1:], word.start), "a parameter")
            if word.text in found:
                raise self._source.error(word, f"parameter {word.text} is named twice")
            found[word.text] = self._type(kind)
        return found

    def _declare(self, node: Node, what: str, into: dict[str, Declared]) -> None:
        if not isinstance(node, Bracket) or not node.items:
            raise self._source.error(node, f"expected a {what} in brackets")
        name = self._source.name(node.items[0], f"a {what}")
        if name in into:
            raise self._twice(node, f"{what} '{name}'", into[name].at)
        terms = self.variables(Bracket(node.items[1:], node.start, node.end))
        into[name] = Declared(len(terms), node)

    def _type(self, kind: Node | None) -> str:
        if kind is None:
            return ROOT
        self.use(":typing", kind)
        if isinstance(kind, Word):
            if kind.text not in (ROOT, *self.types):
                raise self._source.unknown(kind, "type", kind.text, (ROOT, *self.types))
            return kind.text
        if kind.head != "either" or len(kind.items) < 2:
            raise self._source.error(kind, "expected a type, or (either TYPE ...)")
        names = tuple(self._type(item) for item in kind.items[1:])
        self.unions[f"(either {' '.join(names)})"] = names
        return f"(either {' '.join(names)})"

    def _typed(self, nodes: Sequence[Node], what: str) -> list[tuple[Node, Node | None]]:
        """Returns the members of a typed list, each with the type after the next "-", or None."""
        found: list[tuple[Node, Node | None]] = []
        waiting: list[Node] = []
        rest = iter(nodes)
        for node in rest:
            if not (isinstance(node, Word) and node.text == "-"):
                waiting.append(node)
                continue
            kind = next(rest, None)
            if not waiting or kind is None:
                side = f"{what} before" if not waiting else "a type after"
                raise self._source.error(node, f"expected {side} '-'")
            found += [(each, kind) for each in waiting]
            waiting = []
        return [*found, *((each, None) for each in waiting)]

    def _twice(self, at: Node, what: str, first: Node) -> Exception:
        line = self._source.line(first)
        return self._source.error(at, f"{what} is declared twice, first in line {line}")
