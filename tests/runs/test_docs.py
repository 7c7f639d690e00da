import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Docs site from a strict build: a broken link or a missing page ends the build."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_the_start_page_of_the_site_is_the_readme(site: Path) -> None:
    assert "diagnose the skills of a home robot" in (site / "index.html").read_text()


def test_every_link_of_a_page_points_to_a_file_of_the_site(site: Path) -> None:
    """Checks links of the finished pages, including images; mkdocs checks those of Markdown."""
    broken = []
    for page in site.rglob("*.html"):
        for target in re.findall(r'(?:href|src)="([^"#?]+)', page.read_text()):
            elsewhere = re.match(r"\w+:|//", target)
            # The page 404.html can be shown under any address, so its links begin at the root.
            if not elsewhere and page.name != "404.html" and not (page.parent / target).exists():
                broken.append((page.name, target))
    assert broken == []


def test_the_site_fetches_nothing_from_other_hosts(site: Path) -> None:
    fetched = re.compile(r'<(?:script|img|iframe|link)\b[^>]*?(?:src|href)="((?:https?:)?//[^"]+)"')
    pages = {page.name: fetched.findall(page.read_text()) for page in site.rglob("*.html")}
    assert {name: found for name, found in pages.items() if found} == {}


@pytest.mark.parametrize("package", ["tpsrl", "skills", "planner", "eval"])
def test_the_reference_has_every_public_module(site: Path, package: str) -> None:
    text = "".join(page.read_text() for page in (site / "api").glob("*.html"))
    hidden = ("commands", "bench", "warmup")
    missing = []
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts)
        if any(part.startswith("_") or part in hidden for part in parts):
            continue
        if len(parts) > 2 or package != "tpsrl":
            missing += [] if f'id="{name}"' in text else [name]
    assert missing == []
