"""The field's words: names that the project has given up, and what each word means."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_house import modules

GIVEN_UP = (
    "answers", "bury", "desk", "greet", "heed", "helpers", "homes_factory", "judgement", "letters",
    "mail", "obituary", "success_parts",
)  # fmt: skip


def names_of(tree: ast.AST) -> Iterator[str]:
    """What code defines: classes, functions, arguments, attributes and variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id


def plain(name: str) -> str:
    """`HomesFactory`, `_homes_factory` -> homes_factory."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).strip("_").lower()


@pytest.mark.parametrize(("name", "path"), list(modules()))
def test_no_name_is_one_that_was_given_up(name: str, path: Path) -> None:
    used = {plain(found) for found in names_of(ast.parse(path.read_text()))}
    assert sorted(used & set(GIVEN_UP)) == []


def test_a_name_that_was_given_up_is_found_in_any_spelling() -> None:
    code = "class HomesFactory:\n    def _bury(self): self.letters = Answers()"
    used = {plain(found) for found in names_of(ast.parse(code))}
    assert used & set(GIVEN_UP) == {"homes_factory", "bury", "letters", "answers"}
