"""Bracketed text, such as PDDL, as a tree of words in which each has its line and column."""

import dataclasses
import re
from collections.abc import Iterable, Iterator

from tpsrl.errors import UserError, unknown

_DEEPEST = 40  # brackets in each other
_TOKEN = re.compile(r";[^\n]*|[()]|[^\s();]+")
_NAME = re.compile(r"[a-z][a-z0-9_-]*")


@dataclasses.dataclass(frozen=True, slots=True)
class Word:
    """A word in small letters, as PDDL takes any case for the same; `start` is its index."""

    text: str
    start: int


@dataclasses.dataclass(frozen=True, slots=True)
class Bracket:
    """What stands between brackets; `start` and `end` are their indices in the text."""

    items: tuple["Node", ...]
    start: int
    end: int

    @property
    def head(self) -> str:
        """The first word, "" where there is none."""
        first = self.items[0] if self.items else None
        return first.text if isinstance(first, Word) else ""


Node = Word | Bracket


class SourceText:
    """A text and what it is `called` in errors, such as "domain: mine.pddl".

    A byte order mark is skipped. Any line end counts: that of Unix, Windows and old Macs.
    """

    def __init__(self, text: str, called: str) -> None:
        self._text = re.sub("\r\n?", "\n", text.removeprefix("\ufeff"))
        self.called = called

    def read(self) -> Iterator[Node]:
        """Everything in the text but comments, one after another.

        Raises:
            UserError: a bracket has no partner, or too many are in each other.
        """
        open_brackets: list[tuple[int, list[Node]]] = [(0, [])]
        for found in _TOKEN.finditer(self._text):
            token, start = found[0], found.start()
            if token == "(":
                if len(open_brackets) > _DEEPEST:
                    raise self.error(start, f"more than {_DEEPEST} brackets in each other")
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
        """The line of a place, from 1."""
        return self._text.count("\n", 0, _index(at)) + 1

    def error(self, at: Node | int, why: str) -> UserError:
        """What is wrong at a place."""
        return UserError(f"{self._where(at)}: {why}")

    def unknown(self, at: Node | int, what: str, given: str, valid: Iterable[str]) -> UserError:
        """A word at a place that is none of the valid ones, with the nearest of these."""
        valid = list(valid)
        if not valid:
            return self.error(at, f"{what}: unknown value '{given}', as none is declared")
        return unknown(f"{self._where(at)}: {what}", given, valid)

    def name(self, node: Node, what: str) -> str:
        """The name that a node is; `what` it is the name of is for the error.

        Raises:
            UserError: it is no name.
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
