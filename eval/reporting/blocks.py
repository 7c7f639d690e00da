"""What pages are built of. What is called HTML goes in as it is, all other text is escaped."""

import importlib.resources
import re
import string
import urllib.parse
from collections.abc import Sequence
from html import escape
from typing import Any

from eval.reporting import acting

_HINT = '<p class="hint">What is wider than this screen scrolls sideways in its box.</p>'
_WIDE_COLUMNS = 3  # a table of so many columns may be wider than a phone


def shell(title: str, facts: Sequence[str], sections: Sequence[str]) -> str:
    """A whole page of sections that are HTML already; `facts` make the line under the title."""
    template = importlib.resources.files("eval.reporting") / "page.html"
    return string.Template(template.read_text(encoding="utf-8")).substitute(
        title=escape(title),
        facts=escape(" · ".join(facts)),
        sections="\n".join(section for section in sections if section),
    )


def section(title: str, note: str, *content: str) -> str:
    """A part of the page with a heading; `content` is HTML, the others are text."""
    told = f'<p class="note">{escape(note)}</p>\n' if note else ""
    inside = "\n".join(part for part in content if part)
    return f"<section>\n<h2>{escape(title)}</h2>\n{told}{inside}\n</section>"


def subheading(text: str) -> str:
    """A heading within a section."""
    return f"<h3>{escape(text)}</h3>"


def paragraph(text: str, kind: str = "") -> str:
    """A sentence or two, in the style of a class of the page."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def prose(text: str, kind: str = "") -> str:
    """A paragraph in which what stands between backticks is set as code."""
    marked = re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))
    return f'<p class="{kind}">{marked}</p>' if kind else f"<p>{marked}</p>"


def scrolling(content: str, label: str) -> str:
    """HTML that may be wider than the screen, in a box that scrolls by itself and says so."""
    box = f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">'
    return f"{_HINT}{box}{content}</div>"


def folded(summary: str, content: str, kind: str = "") -> str:
    """HTML that is shown when its summary is clicked."""
    name = f' class="{kind}"' if kind else ""
    return f"<details{name}><summary>{escape(summary)}</summary>{content}</details>"


def span(kind: str, text: str) -> str:
    """A text in the style of a class of the page."""
    return f'<span class="{kind}">{escape(text)}</span>'


def code(text: str) -> str:
    """A predicate, a key or a command; a click selects all of it."""
    return f"<code>{escape(text)}</code>"


def named(text: str, identifier: str) -> str:
    """Words for what the files call by an identifier, which shows where a mouse rests on them."""
    return f'<span title="{escape(identifier)}">{escape(text)}</span>'


def long_name(text: str) -> str:
    """HTML of a name without spaces, which a narrow screen may break anywhere."""
    return f'<span class="name">{text}</span>'


def url(path: str) -> str:
    """The address of a file beside the page, for an attribute."""
    return escape(urllib.parse.quote(path))


def anchor(path: str, text: str) -> str:
    """A link to a file beside the page."""
    return f'<a href="{url(path)}">{escape(text)}</a>'


def outcome(success: bool, failed: str = "failed") -> str:
    """How something ended, by a sign, a word and a colour."""
    return span("good", "✓ success") if success else span("bad", f"✗ {failed}")


def headline(figures: Sequence[tuple[str, str]], findings: Sequence[str] = ()) -> str:
    """The figures (value, what it is), the first one large and, under it, what was found."""
    parts = [
        f'<div class="figure{" main" if place == 0 else ""}"><b>{escape(value)}</b>'
        f"<span>{escape(text)}</span></div>"
        for place, (value, text) in enumerate(figures)
    ]
    if not findings:
        return f'<section>\n<div class="headline">{"".join(parts)}</div>\n</section>'
    found = "".join(f"<li>{escape(text)}</li>" for text in findings)
    return (
        f'<section>\n<div class="headline">{parts[0]}</div>\n<ul class="findings">{found}</ul>\n'
        f'<div class="headline">{"".join(parts[1:])}</div>\n</section>'
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], label: str = "table") -> str:
    """An HTML table of cells that are HTML already; heads that start with # are of numbers.

    One that may be wider than a phone is in a box that scrolls.
    """
    kinds = [' class="n"' if head.startswith("#") else "" for head in heads]

    def line(tag: str, cells: Sequence[str]) -> str:
        pairs = zip(kinds, cells, strict=True)
        return f"<tr>{''.join(f'<{tag}{kind}>{cell}</{tag}>' for kind, cell in pairs)}</tr>"

    head = line("th", [escape(h.lstrip("#")) for h in heads])
    body = "".join(line("td", row) for row in rows)
    text = f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"
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
    changed = ", ".join(f"{key}={value}" for key, value in report["protocol_changes"].items())
    if changed:
        facts.insert(-2, f"with {changed}")
    return facts


def protocol(report: dict[str, Any]) -> str:
    """The command that was run and every value of the protocol, the latter folded in."""
    changed = report["protocol_changes"]
    rows = [
        [
            code(key),
            escape("none" if value is None else str(value)),
            span("bad", "changed") if key in changed else "",
        ]
        for key, value in report["protocol_values"].items()
    ]
    ran = [
        (name, report.get(key))
        for name, key in (("command", "settings_command"), ("digest of the episodes", "dataset"))
    ]
    told = "".join(
        f"<p>{escape(name)}: {code(str(value))}</p>" for name, value in ran if value is not None
    )
    values = table(["entry", "#value", ""], rows)
    title = f"Protocol {report['protocol']} and what was run"
    return section(title, "", told, folded("Every value of the protocol", values))
