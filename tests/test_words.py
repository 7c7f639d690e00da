"""The field's words: names that the project has given up, and what each word means."""

import ast
import re
from collections.abc import Iterator

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


def test_no_name_is_one_that_was_given_up() -> None:
    found = {
        name: sorted(set(map(plain, names_of(ast.parse(path.read_text())))) & set(GIVEN_UP))
        for name, path in modules()
    }
    assert {name: used for name, used in found.items() if used} == {}


def test_a_name_that_was_given_up_is_found_in_any_spelling() -> None:
    code = "class HomesFactory:\n    def _bury(self): self.letters = Answers()"
    used = {plain(found) for found in names_of(ast.parse(code))}
    assert used & set(GIVEN_UP) == {"homes_factory", "bury", "letters", "answers"}
