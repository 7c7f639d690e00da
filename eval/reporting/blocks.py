"""What pages are built of. All text is escaped; what is HTML already is so by its type."""

import importlib.resources
import re
import string
import urllib.parse
from collections.abc import Sequence
from html import escape
from typing import Any

from eval.reporting import acting
from eval.reporting.markup import Markup, fill, html, join

_HINT = fill('<p class="hint">What is wider than this screen scrolls sideways in its box.</p>')
_WIDE_COLUMNS = 3  # a table of so many columns may be wider than a phone


def shell(title: str, facts: Sequence[str], sections: Sequence[Markup | str]) -> str:
    """A whole page; `facts` make the line under the title."""
    template = importlib.resources.files("eval.reporting") / "page.html"
    return string.Template(template.read_text(encoding="utf-8")).substitute(
        title=html(title),
        facts=html(" · ".join(facts)),
        sections=join((section for section in sections if section), "\n"),
    )


def section(title: str, note: str, *content: Markup | str) -> Markup:
    """A part of the page with a heading."""
    told = fill('<p class="note">{}</p>\n', note) if note else ""
    inside = join((part for part in content if part), "\n")
    return fill("<section>\n<h2>{}</h2>\n{}{}\n</section>", title, told, inside)


def subheading(text: str) -> Markup:
    """A heading within a section."""
    return fill("<h3>{}</h3>", text)


def paragraph(text: str, kind: str = "") -> Markup:
    """A sentence or two, in the style of a class of the page."""
    return fill('<p class="{}">{}</p>', kind, text) if kind else fill("<p>{}</p>", text)


def prose(text: str, kind: str) -> Markup:
    """A paragraph in which what stands between backticks is set as code."""
    marked = Markup(re.sub("`([^`]+)`", r"<code>\1</code>", escape(text)))
    return fill('<p class="{}">{}</p>', kind, marked)


def scrolling(content: Markup, label: str) -> Markup:
    """What may be wider than the screen, in a box that scrolls by itself and says so."""
    box = fill('<div class="scroll" role="region" tabindex="0" aria-label="{}">', label)
    return fill("{}{}{}</div>", _HINT, box, content)


def folded(summary: str, content: Markup, kind: str = "") -> Markup:
    """What is shown when its summary is clicked."""
    name = fill(' class="{}"', kind) if kind else ""
    return fill("<details{}><summary>{}</summary>{}</details>", name, summary, content)


def span(kind: str, text: str) -> Markup:
    """A text in the style of a class of the page."""
    return fill('<span class="{}">{}</span>', kind, text)


def code(text: str) -> Markup:
    """A predicate, a key or a command; a click selects all of it."""
    return fill("<code>{}</code>", text)


def named(text: str, identifier: str) -> Markup:
    """Words for what the files call by an identifier, which shows where a mouse rests on them."""
    return fill('<span title="{}">{}</span>', identifier, text)


def long_name(text: Markup | str) -> Markup:
    """A name without spaces, which a narrow screen may break anywhere."""
    return fill('<span class="name">{}</span>', text)


def url(path: str) -> str:
    """The address of a file beside the page, for an attribute.

    Raises:
        ValueError: the path does not begin at the page, so that it could name another machine.
    """
    if path.startswith("/"):
        raise ValueError(f"{path!r} does not begin at the page")
    return urllib.parse.quote(path)  # the colon of a scheme too


def anchor(path: str, text: str) -> Markup:
    """A link to a file beside the page."""
    return fill('<a href="{}">{}</a>', url(path), text)


def outcome(success: bool, failed: str = "failed") -> Markup:
    """How something ended, by a sign, a word and a colour."""
    return span("good", "✓ success") if success else span("bad", f"✗ {failed}")


def headline(figures: Sequence[tuple[str, str]], findings: Sequence[str] = ()) -> Markup:
    """The figures (value, what it is), the first one large and, under it, what was found."""
    parts = [
        fill(
            '<div class="figure{}"><b>{}</b><span>{}</span></div>',
            "" if place else " main",
            value,
            text,
        )
        for place, (value, text) in enumerate(figures)
    ]
    if not findings:
        return fill('<section>\n<div class="headline">{}</div>\n</section>', join(parts))
    return fill(
        '<section>\n<div class="headline">{}</div>\n<ul class="findings">{}</ul>\n'
        '<div class="headline">{}</div>\n</section>',
        parts[0],
        join(fill("<li>{}</li>", text) for text in findings),
        join(parts[1:]),
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], label: str = "table") -> Markup:
    """An HTML table; heads that start with # are of numbers.

    One that may be wider than a phone is in a box that scrolls.
    """
    kinds = [Markup(' class="n"') if head.startswith("#") else "" for head in heads]

    def line(tag: str, cells: Sequence[object]) -> Markup:
        pairs = zip(kinds, cells, strict=True)
        inside = (fill("<{0}{1}>{2}</{0}>", tag, kind, cell) for kind, cell in pairs)
        return fill("<tr>{}</tr>", join(inside))

    head = line("th", [h.lstrip("#") for h in heads])
    body = join(line("td", row) for row in rows)
    text = fill("<table><thead>{}</thead><tbody>{}</tbody></table>", head, body)
    return scrolling(text, label) if len(heads) >= _WIDE_COLUMNS else text


def common_facts(report: dict[str, Any]) -> list[str]:
    """What was run, in short."""
    count = f"{report['num_episodes']} episodes"
    source = [f"{count} of split {report['split']}", f"seed {report['seed']}"]
    if report.get("starts") is not None:
        source = [f"{count} from {report['starts']}"]
    facts = [
        *source,
        f"protocol {report['protocol']}",
        f"engine {report['engine']}",
        f"tpsrl {report['version']}",
    ]
    for skill, policy in report["learned"].items():
        steps = f"{policy['trained_steps'] / 1e6:.1f} million steps"
        mean = "" if policy.get("sample", True) else ", by its mean actions"
        facts.append(f"{skill.replace('_', ' ')} trained for {steps}: {policy['checkpoint']}{mean}")
    if sensing := acting.privileged(report):
        facts.append(sensing)
    if blind := acting.blinded(report):
        facts.append(blind)
    changed = ", ".join(f"{key}={value}" for key, value in report["protocol_changes"].items())
    if changed:
        facts.insert(-2, f"with {changed}")
    return facts


def protocol(report: dict[str, Any]) -> Markup:
    """The command that was run and every value of the protocol, the latter folded in."""
    changed = report["protocol_changes"]
    rows = [
        [
            code(key),
            "none" if value is None else str(value),
            span("bad", "changed") if key in changed else "",
        ]
        for key, value in report["protocol_values"].items()
    ]
    ran = [
        (name, report.get(key))
        for name, key in (("command", "settings_command"), ("digest of the episodes", "dataset"))
    ]
    told = join(
        fill("<p>{}: {}</p>", name, code(value)) for name, value in ran if value is not None
    )
    values = table(["entry", "#value", ""], rows)
    title = f"Protocol {report['protocol']} and what was run"
    return section(title, "", told, folded("Every value of the protocol", values))
