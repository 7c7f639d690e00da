"""Parser of bracketed text, such as PDDL, into a tree of words with line and column."""

import dataclasses
import re
from collections.abc import Iterable, Iterator

from tpsrl.errors import UserError, unknown

_DEEPEST = 40  # maximum nesting of brackets
_TOKEN = re.compile(r";[^\n]*|[()]|[^\s();]+")
_NAME = re.compile(r"[a-z][a-z0-9_-]*")


@dataclasses.dataclass(frozen=True, slots=True)
class Word:
    """A word in lower case, since PDDL ignores case; `start` is its index in the text."""

    text: str
    start: int


@dataclasses.dataclass(frozen=True, slots=True)
class Bracket:
    """The nodes between two brackets; `start` and `end` are the brackets' indices in the text."""

    items: tuple["Node", ...]
    start: int
    end: int

    @property
    def head(self) -> str:
        """First word, or "" if there is none."""
        first = self.items[0] if self.items else None
        return first.text if isinstance(first, Word) else ""


Node = Word | Bracket


class SourceText:
    """A text with the name by which errors refer to it, such as "domain: mine.pddl".

    A byte order mark is skipped. The line ends of Unix, Windows and old Macs are accepted.
    """

    def __init__(self, text: str, called: str) -> None:
        self._text = re.sub("\r\n?", "\n", text.removeprefix("\ufeff"))
        self.called = called

    def read(self) -> Iterator[Node]:
        """Yields the top-level nodes of the text, without comments.

        Raises:
            UserError: a bracket has no partner, or the brackets are nested too deeply.
        """
        open_brackets: list[tuple[int, list[Node]]] = [(0, [])]
        for found in _TOKEN.finditer(self._text):
            token, start = found[0], found.start()
            if token == "(":
                if len(open_brackets) > _DEEPEST:
                    raise self.error(start, f"brackets are nested more than {_DEEPEST} deep")
                open_brackets.append((start, []))
            elif token == ")":
                begin, items = open_brackets.pop()
                if not open_brackets:
                    raise self.error(start, "')' closes a bracket that was never opened")
                open_brackets[-1][1].append(Bracket(tuple(items), begin, start))
            elif not token.startswith(";"):
                open_brackets[-1][1].append(Word(token.lower(), start))
            if len(open_brackets) == 1:
                yield from open_brackets[0][1]
                open_brackets[0][1].clear()
        if len(open_brackets) > 1:
            raise self.error(open_brackets[-1][0], "the bracket is never closed")

    def line(self, at: Node | int) -> int:
        """Returns the line of a node or index, from 1."""
        return self._text.count("\n", 0, _index(at)) + 1

    def error(self, at: Node | int, why: str) -> UserError:
        """Returns an error at a node or index."""
        return UserError(f"{self._where(at)}: {why}")

    def unknown(self, at: Node | int, what: str, given: str, valid: Iterable[str]) -> UserError:
        """Returns an error for a word that is not among the valid ones, with the nearest one."""
        valid = list(valid)
        if not valid:
            return self.error(at, f"{what}: unknown value '{given}'; none is declared")
        return unknown(f"{self._where(at)}: {what}", given, valid)

    def name(self, node: Node, what: str) -> str:
        """Returns the name that a node holds; `what` is the named object in messages.

        Raises:
            UserError: the node is not a valid name.
        """
        if not isinstance(node, Word):
            raise self.error(node, f"expected the name of {what}, got a bracket")
        if not _NAME.fullmatch(node.text):
            allowed = "a letter, then letters, digits, - and _"
            raise self.error(node, f"the name of {what} must be {allowed}, got '{node.text}'")
        return node.text

    def _where(self, at: Node | int) -> str:
        index = _index(at)
        column = index - self._text.rfind("\n", 0, index)
        return f"{self.called}, line {self.line(at)}, column {column}"


def _index(at: Node | int) -> int:
    return at if isinstance(at, int) else at.start
