"""The pages of the docs site that are not files of docs/: mkdocs calls these functions.

README, CONTRIBUTING, CHANGELOG and NOTICE stand at the root of the repository, the examples in
folders of their own, and the reference is made of the docstrings: one page a package, one section a
module, found by looking into the folders.
"""

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]

# Page of the site: file of the repository.
DOCUMENTS = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "notice.md": "NOTICE",
    **{
        f"examples/{path.parent.name}.md": path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "examples").glob("*/README.md"))
    },
}

# Page of the reference: (title, modules or packages). A package stands for all public modules
# in it, but for those that have a page of their own.
REFERENCE = {
    "python": ("tpsrl from Python", ["tpsrl.api", "tpsrl.config", "tpsrl.errors"]),
    "world": ("tpsrl.world", ["tpsrl.world"]),
    "sim": ("tpsrl.sim", ["tpsrl.sim"]),
    "render": ("tpsrl.render", ["tpsrl.render"]),
    "motion": ("tpsrl.motion", ["tpsrl.motion"]),
    "runtime": ("tpsrl.runtime", ["tpsrl.runtime"]),
    "rl": ("tpsrl.rl", ["tpsrl.rl"]),
    "training": ("tpsrl.training", ["tpsrl.training"]),
    "skills": ("skills", ["skills"]),
    "planner": ("planner", ["planner"]),
    "eval": ("eval", ["eval"]),
}

# Its text in brackets, the path that it leads to, and the heading there.
_LINK = re.compile(r"(!?\[[^\[\]\n]*\])\((?!\w+:)([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the documents of the root, of the examples, and the reference."""
    for page, name in DOCUMENTS.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        if name == "NOTICE":
            text = f"# Licence and origin\n\n{text}"
        files.append(File.generated(config, page, content=_rewrite(text, name, page)))
    for name, (title, packages) in REFERENCE.items():
        text = "".join(f"::: {module}\n\n" for package in packages for module in modules(package))
        files.append(File.generated(config, f"api/{name}.md", content=f"# {title}\n\n{text}"))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turns links of docs/ to files of the repository into links of the site."""
    if page.file.generated_by:
        return markdown
    return _rewrite(markdown, f"docs/{page.file.src_uri}", page.file.src_uri)


def modules(name: str) -> Iterator[str]:
    """The public modules of a package, itself first, or the one module of that name.

    Modules of measurements and of warming up are left out: they are run, not called.
    """
    path = ROOT.joinpath(*name.split("."))
    if path.with_suffix(".py").is_file():
        yield name
        return
    if not path.is_dir():
        raise PluginError(f"docs/_site/pages.py: there is no module {name}")
    if _has_code(path / "__init__.py"):
        yield name
    for child in sorted(path.iterdir(), key=lambda child: (child.is_dir(), child.name)):
        if child.name.startswith("_") or child.stem in ("bench", "warmup"):
            continue
        if child.suffix == ".py" or (child / "__init__.py").is_file():
            yield from modules(f"{name}.{child.stem}")


def _has_code(path: Path) -> bool:
    """Whether a package has more in itself than a line that says what it is."""
    return path.is_file() and "\ndef " in f"\n{path.read_text(encoding='utf-8')}"


def _rewrite(text: str, source: str, page: str) -> str:
    """A document's links to files of the repository, as links of the site.

    What the site does not have, such as a source file, keeps its text and loses the link.
    """
    pages = {f"docs/{p.relative_to(ROOT / 'docs').as_posix()}" for p in _files(ROOT / "docs")}
    site = {name: name.removeprefix("docs/") for name in pages}
    site |= {name: page for page, name in DOCUMENTS.items()}

    def link(match: re.Match[str]) -> str:
        text, path, heading = match.groups()
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        found = site.get(target) or site.get(f"{target}/README.md")
        if found is not None:
            return (
                f"{text}({os.path.relpath(found, posixpath.dirname(page) or '.')}{heading or ''})"
            )
        # Where nothing is there either, mkdocs says so.
        return text[1:-1] if (ROOT / target).exists() else match[0]

    return _LINK.sub(link, text)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())
