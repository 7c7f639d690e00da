"""The types, constants, predicates and functions that a domain declares."""

import dataclasses
from collections.abc import Sequence

from planner.pddl.source import Bracket, Node, SourceText, Word

ROOT = "object"  # the type of everything that has no other


@dataclasses.dataclass(frozen=True, slots=True)
class Declared:
    """What takes terms: its number of terms, and the place of its declaration."""

    terms: int
    at: Node


class Vocabulary:
    """What a domain declares, and which requirements it uses.

    `types` maps each type to the one above it, `constants` to their types. `unions` are the types
    that stand for `(either ...)`. `uses` maps each requirement to the place of its first use.
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
        """Notes that something of a requirement stands at a place."""
        self.uses.setdefault(requirement, at)

    def declare_types(self, section: Bracket) -> None:
        """Reads `(:types ...)`; a type that is only named as another's is one below `object`.

        Raises:
            UserError: a type is declared twice, or is above itself.
        """
        self.use(":typing", section)
        places: dict[str, Node] = {}
        for word, kind in self._typed(section.items[1:], "a type"):
            name = self._source.name(word, "a type")
            if name in places:
                raise self._twice(word, f"type '{name}'", places[name])
            if name == ROOT and kind is not None:
                raise self._source.error(word, f"'{ROOT}' is above all types and below none")
            if isinstance(kind, Bracket):
                raise self._source.error(kind, "a type below several is not supported")
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
                return  # the cycle is above, and found from there

    def declare_constants(self, section: Bracket) -> None:
        """Reads `(:constants ...)`.

        Raises:
            UserError: one is declared twice, or its type is unknown.
        """
        places: dict[str, Node] = {}
        for word, kind in self._typed(section.items[1:], "a constant"):
            name = self._source.name(word, "a constant")
            if name in places:
                raise self._twice(word, f"constant '{name}'", places[name])
            if isinstance(kind, Bracket):
                raise self._source.error(kind, "a constant of one of several types is unsupported")
            places[name] = word
            self.constants[name] = self._type(kind)

    def declare_predicates(self, section: Bracket) -> None:
        """Reads `(:predicates ...)`.

        Raises:
            UserError: one is malformed or declared twice, or a type is unknown.
        """
        for item in section.items[1:]:
            self._declare(item, "predicate", self.predicates)

    def declare_functions(self, section: Bracket) -> None:
        """Reads `(:functions ...)`, which have numbers as values.

        Raises:
            UserError: one is malformed or declared twice, or has other values than numbers.
        """
        self.use(":action-costs", section)
        for item, kind in self._typed(section.items[1:], "a function"):
            if kind is not None and not (isinstance(kind, Word) and kind.text == "number"):
                raise self._source.error(kind, "a function must have the type 'number'")
            self._declare(item, "function", self.functions)

    def variables(self, node: Node) -> dict[str, str]:
        """The variables of a bracket with their types, in its order.

        Raises:
            UserError: it is malformed, one is named twice, or a type is unknown.
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
        """The members of a typed list, each with the type behind the next "-"."""
        found: list[tuple[Node, Node | None]] = []
        waiting: list[Node] = []
        rest = iter(nodes)
        for node in rest:
            if not (isinstance(node, Word) and node.text == "-"):
                waiting.append(node)
                continue
            kind = next(rest, None)
            if not waiting or kind is None:
                side = f"{what} before" if not waiting else "a type behind"
                raise self._source.error(node, f"expected {side} '-'")
            found += [(each, kind) for each in waiting]
            waiting = []
        return [*found, *((each, None) for each in waiting)]

    def _twice(self, at: Node, what: str, first: Node) -> Exception:
        line = self._source.line(first)
        return self._source.error(at, f"{what} is declared twice, first in line {line}")
