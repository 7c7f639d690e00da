"""The report in a browser: files load, links resolve, and the page fits on a phone.

One Chromium opens a page with two frames, one as wide as a phone and one as a screen. Each frame
shows a copy of the report with a script that inspects it and posts the results to the outer page.
"""

import dataclasses
import html
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest
from full_report import ODD_CAUSE, ODD_ID, full_records, write_files
from rich.console import Console

from eval.reporting import words
from eval.running import reports

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
PHONE, SCREEN = 390, 1280

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium on the PATH")

LOOK = """<script>
const all = (query) => [...document.querySelectorAll(query)];
const settled = (video) => new Promise((done) => {
  if (video.readyState >= 1 || video.error) done();
  video.addEventListener("loadedmetadata", done);
  video.addEventListener("error", done);
});
const loaded = (url) => new Promise((done) => {
  const picture = new Image();
  picture.onload = () => done(true);
  picture.onerror = () => done(false);
  picture.src = url;
});
window.addEventListener("load", async () => {
  await Promise.all(all("video").map(settled));
  const posters = all("video[poster]").map((video) => video.poster);
  const shown = await Promise.all(posters.map(loaded));
  const edge = document.documentElement.clientWidth;
  parent.postMessage({
    width: window.innerWidth,
    overflow: document.documentElement.scrollWidth - edge,
    sticking_out: all("main *").filter((element) => !element.closest(".scroll, svg")
      && element.getBoundingClientRect().right > edge + 1).map((element) => element.outerHTML),
    pictures: all("img").map((picture) => [picture.src, picture.naturalWidth]),
    posters: posters.map((url, place) => [url, shown[place]]),
    videos: all("video").map((video) => [video.src, video.videoWidth]),
    links: all("a[href]").map((link) => link.href),
    cells: all("td").map((cell) => cell.firstChild ? cell.firstChild.textContent : ""),
    text: document.body.textContent,
    title: document.title,
    hints: all(".hint").map((hint) => getComputedStyle(hint).display),
    wide: all(".scroll").filter((box) => box.scrollWidth > box.clientWidth).length,
    letters: all("svg text").filter((text) => !text.closest("details")).map(
      (text) => text.getBoundingClientRect().height).filter((height) => height > 0),
  }, "*");
});
</script>"""

AROUND = """<!doctype html><title>two frames</title>
<script>
const found = [];
window.addEventListener("message", (event) => {{
  found.push(event.data);
  if (found.length < 2) return;
  const text = document.createElement("pre");
  text.textContent = JSON.stringify(found);
  document.body.append(text);
}});
</script>
<body>{frames}</body>"""


@dataclasses.dataclass(frozen=True)
class Seen:
    """Findings of the browser by width of the frame, and its console messages."""

    frames: dict[int, dict[str, Any]]
    console: list[str]


def browse(folder: Path, page: str) -> Seen:
    """Opens a page in the folder that contains the files it needs."""
    assert CHROMIUM is not None
    (folder / "looked_over.html").write_text(page.replace("<head>", f"<head>{LOOK}", 1))
    frames = "".join(
        f'<iframe src="looked_over.html" style="border: 0; width: {width}px; height: 800px">'
        "</iframe>"
        for width in (PHONE, SCREEN)
    )
    (folder / "around.html").write_text(AROUND.format(frames=frames))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,900"]
    command += [f"--user-data-dir={folder}/profile", "--disable-dev-shm-usage"]
    command += ["--enable-logging=stderr"]
    command += ["--virtual-time-budget=20000", "--dump-dom", (folder / "around.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    found = re.search(r"<pre>(.*)</pre>", done.stdout, re.DOTALL)
    assert found is not None, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    verdicts = json.loads(html.unescape(found[1]))
    lines = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return Seen({verdict["width"]: verdict for verdict in verdicts}, lines)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a report that has every possible part."""
    path = tmp_path_factory.mktemp("full")
    write_files(path)
    reports.rebuild(str(path), Console(quiet=True))
    return path


@pytest.fixture(scope="module")
def seen(folder: Path) -> Iterator[Seen]:
    yield browse(folder, (folder / "report.html").read_text())


def test_the_page_gives_no_console_messages(seen: Seen) -> None:
    assert seen.console == []
    assert set(seen.frames) == {PHONE, SCREEN}


@pytest.mark.parametrize("width", [PHONE, SCREEN])
def test_every_image_and_video_loads(seen: Seen, width: int) -> None:
    found = seen.frames[width]
    assert len(found["pictures"]) == len(found["posters"]) == 3 and len(found["videos"]) == 5
    broken = [url for key in ("pictures", "posters", "videos") for url, ok in found[key] if not ok]
    assert broken == []


def test_every_link_points_to_a_file(seen: Seen) -> None:
    links = [urlparse(link) for link in seen.frames[SCREEN]["links"]]
    assert len(links) > 5
    lost = [
        link for link in links if link.scheme != "file" or not Path(unquote(link.path)).exists()
    ]
    assert lost == []


def test_names_with_markup_are_text(seen: Seen) -> None:
    found = seen.frames[SCREEN]
    assert found["title"].startswith("Tidy House, mixed")
    assert ODD_ID in found["cells"] and full_records()[1]["id"] in found["cells"]
    assert words.fact(ODD_CAUSE) in found["text"] and "<i>slipped & fell</i>" in found["text"]


def test_nothing_is_wider_than_a_phone(seen: Seen) -> None:
    found = seen.frames[PHONE]
    assert found["overflow"] == 0 and found["sticking_out"] == []


def test_scrollable_boxes_have_a_hint_on_a_phone(seen: Seen) -> None:
    assert seen.frames[PHONE]["wide"] > 0
    assert set(seen.frames[PHONE]["hints"]) == {"block"}
    assert set(seen.frames[SCREEN]["hints"]) == {"none"}


def test_text_of_charts_stays_legible_on_a_phone(seen: Seen) -> None:
    assert min(seen.frames[PHONE]["letters"]) > 12


def test_a_comparison_fits_a_phone_and_its_links_point_to_files(
    folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "a name that is too long for a line #2"
    shutil.copytree(folder, other, ignore=shutil.ignore_patterns("profile"))
    records = full_records()
    records[1]["success"] = False
    lines = [json.dumps(record) + "\n" for record in records]
    (other / "episodes.jsonl").write_text("".join(lines))
    out = tmp_path / "out"
    reports.compare([str(folder), str(other)], str(out), Console(quiet=True))
    seen = browse(out, (out / "report.html").read_text())
    found = seen.frames[PHONE]
    assert seen.console == [] and found["overflow"] == 0 and found["sticking_out"] == []
    links = [Path(unquote(urlparse(link).path)) for link in found["links"]]
    assert len(links) == 4 and all(link.exists() for link in links)


def test_defects_of_a_page_are_detected(tmp_path: Path) -> None:
    page = """<!doctype html><html><head><title>wrong</title></head><body><main>
        <div style="width: 600px">wide</div><img src="nowhere.png"><video src="nowhere.mp4"></video>
        <a href="nowhere.html">lost</a><script>console.error("odd")</script></main></body></html>"""
    seen = browse(tmp_path, page)
    found = seen.frames[PHONE]
    assert found["overflow"] > 0 and len(found["sticking_out"]) == 1
    assert found["pictures"][0][1] == 0 and found["videos"][0][1] == 0
    assert any("odd" in line for line in seen.console)
    assert found["links"] == [(tmp_path / "nowhere.html").as_uri()]
