"""Vocabulary: discarded names, unclear phrases in messages, and the glossary."""

import ast
import re
from collections.abc import Iterator

from test_house import ROOT, modules, parsed

GIVEN_UP = (
    "answers", "bury", "desk", "greet", "heed", "helpers", "homes_factory", "judgement", "letters",
    "mail", "obituary", "success_parts",
)  # fmt: skip


# Phrases that help and error messages must not contain; see CONTRIBUTING.md.
UNCLEAR = (
    "anew", "in turn", "in the stead", "is no", "made of", "so many", "told", "whoever",
    "what looks", "what sees", "what acts", "nobody", "somebody",
)  # fmt: skip
# Those that are unclear in docstrings too.
UNCLEAR_ANYWHERE = tuple(one for one in UNCLEAR if one not in ("in turn", "is no", "made of"))
MESSAGES = ("UserError", "RunError", "option", "refused")


def names_of(tree: ast.AST) -> Iterator[str]:
    """Yields the names of classes, functions, arguments, attributes and variables."""
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
    """Converts a name to snake case: `HomesFactory`, `_homes_factory` -> homes_factory."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).strip("_").lower()


def test_no_discarded_name_is_used() -> None:
    found = {
        name: sorted(set(map(plain, names_of(parsed(path)))) & set(GIVEN_UP))
        for name, path in modules()
    }
    assert {name: used for name, used in found.items() if used} == {}


def test_a_discarded_name_is_found_in_any_spelling() -> None:
    code = "class HomesFactory:\n    def _bury(self): self.letters = Answers()"
    used = {plain(found) for found in names_of(ast.parse(code))}
    assert used & set(GIVEN_UP) == {"homes_factory", "bury", "letters", "answers"}


def called(node: ast.Call) -> str:
    """Returns the last part of the called name, such as `option` of `config.option(...)`."""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def prose_of(tree: ast.AST) -> Iterator[str]:
    """Yields the texts of errors and of the help of settings."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or called(node) not in MESSAGES:
            continue
        for text in [*node.args, *(keyword.value for keyword in node.keywords)]:
            parts = [one.value for one in ast.walk(text) if isinstance(one, ast.Constant)]
            yield " ".join(part for part in parts if isinstance(part, str))


def unclear(text: str) -> list[str]:
    """Returns the unclear phrases of a text; "there is no" and "where is no" are allowed."""
    plainer = re.sub(r"\b(there|where) is no\b", "", text)
    return [phrase for phrase in UNCLEAR if re.search(rf"\b{phrase}\b", plainer)]


def test_help_and_errors_contain_no_unclear_phrase() -> None:
    found = {
        f"{name}: {text}": phrases
        for name, path in modules()
        for text in prose_of(parsed(path))
        if (phrases := unclear(text))
    }
    assert found == {}


def docstrings_of(tree: ast.AST) -> Iterator[str]:
    """Yields the docstrings of a module, its classes and its functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def test_docstrings_contain_no_unclear_phrase() -> None:
    found = {
        f"{name}: {text}": phrases
        for name, path in modules()
        for text in docstrings_of(parsed(path))
        if (phrases := [one for one in unclear(text) if one in UNCLEAR_ANYWHERE])
    }
    assert found == {}


def test_an_unclear_phrase_is_found_in_errors_and_options() -> None:
    code = "raise UserError(f'{x}: is no number'); y = config.option(1, 'what looks at ' 'depth')"
    found = [phrase for text in prose_of(ast.parse(code)) for phrase in unclear(text)]
    assert found == ["is no", "what looks"]
    assert unclear("there is no checkpoint") == []


def test_the_glossary_has_each_word_once_and_in_order() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text().split("## Glossary")[1].split("## ")[0]
    words = re.findall(r"^\| \*\*(.+?)\*\* \|", page, re.MULTILINE)
    assert len(words) >= 25 and words == sorted(set(words))
