"""HTML that is told from text by its type, so that no text gets into a page as it is."""

import string
from collections.abc import Iterable
from html import escape
from typing import Any


class Markup(str):
    """HTML. Only `fill`, `join` and `html` make it, which escape all that is none."""

    __slots__ = ()


class _Formatter(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        return html(format(value, format_spec) if format_spec else value)


_FORMATTER = _Formatter()


def html(value: object) -> Markup:
    """A value as HTML: what is HTML already as it is, all else as escaped text."""
    return value if isinstance(value, Markup) else Markup(escape(str(value)))


def fill(template: str, *values: object) -> Markup:
    """HTML of our own with values in the place of its `{}`, which are as in `str.format`."""
    return Markup(_FORMATTER.vformat(template, values, {}))


def join(parts: Iterable[object], between: str = "") -> Markup:
    """Values one after another, with HTML of our own between them."""
    return Markup(between.join(map(html, parts)))
