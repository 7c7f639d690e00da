"""Every code block of the README, the docs and the examples is executed or checked by its kind.

The word after a fence decides. `python` blocks are executed, those of a page in order and with
shared names, as in a notebook; blocks with a `__main__` guard are executed before, as one script.
`shell` blocks are checked against the command line, and executed where that is cheap. `yaml`,
`toml` and `json` blocks are parsed; `text` blocks are not checked. A block with a title
(`python title="reach.py"`) is a file in the folder in which the other blocks of the page run.
"""

import collections
import dataclasses
import importlib.util
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_policies
import yaml

from eval.settings import EvalSettings
from skills import registry
from tpsrl import cli, config
from tpsrl.errors import UserError
from tpsrl.rl.learning import auxiliary
from tpsrl.rl.policy import encoder_registry as encoders
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.training.settings import TrainingSettings

ROOT = Path(__file__).parents[2]
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in (
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "examples").rglob("README.md")),
    )
]
READERS: dict[str, Callable[[str], Any]] = {
    "yaml": yaml.safe_load,
    "toml": tomllib.loads,
    "json": json.loads,
}
KINDS = ("python", "shell", "text", *READERS)
CHEAP = ("plan", "doctor")
# Replacements in Python code that only shorten its run time.
SHORTER = {
    "8_192": "1_024",
    "4_096": "512",
    "num_objects=12": "num_objects=3",
    "num_episodes=4": "num_episodes=1",
    "num_episodes=2": "num_episodes=1",
    "validation_episodes=0,": "validation_episodes=0, processes=0,",
    'tpsrl.evaluate("pick", ': 'tpsrl.evaluate("pick", processes=1, ',
}


@dataclasses.dataclass(frozen=True)
class Block:
    """Fenced block of a page; `line` is the line of its opening fence."""

    page: str
    line: int
    kind: str
    title: str | None
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str, text: str) -> Iterator[Block]:
    fence = re.compile(
        r'^(?P<indent> *)```(?P<kind>[\w-]*)(?: title="(?P<title>[^"]+)")?\n'
        r"(?P<text>.*?)^(?P=indent)```$",
        re.MULTILINE | re.DOTALL,
    )
    for match in fence.finditer(text):
        indent = match["indent"]
        lines = (line.removeprefix(indent) for line in match["text"].splitlines(keepends=True))
        number = text.count("\n", 0, match.start()) + 1
        yield Block(page, number, match["kind"], match["title"], "".join(lines))


BLOCKS = [block for page in PAGES for block in blocks(page, (ROOT / page).read_text())]


def pages_with(kind: str) -> list[str]:
    return [page for page in PAGES if any(b.page == page and b.kind == kind for b in BLOCKS)]


def of(page: str, kind: str) -> list[Block]:
    return [b for b in BLOCKS if b.page == page and b.kind == kind and b.title is None]


def trained(folder: Path, skill: str, *settings: str) -> None:
    """Writes the files of a training that a command line reads."""
    words = [f"skill={skill}", f"out=out/train/{skill}", *settings]
    path = folder / "out" / "train" / skill / "config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(config.to_yaml(config.load(TrainingSettings, config.parse(words))))


def cloned(folder: Path, skill: str) -> None:
    """Writes the files of a cloning and a distillation that a training starts from."""
    for kind in ("clone", "distill"):
        tiny_policies.trained(folder / "out" / kind / skill, skill, "fetch")


def seeing(folder: Path, skill: str) -> None:
    """Writes the files of a training with a camera from which another takes its encoder."""
    network = PolicySettings("nature_cnn", encoder_width=4, visual_width=8, lstm_width=8)
    out = folder / "out" / "train" / skill
    tiny_policies.trained(out, skill, network=network, depth=(64, 64))


def evaluated(folder: Path, scenario: str) -> None:
    """Writes the files of an evaluation that a view reads."""
    path = folder / "out" / scenario / "config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(
        config.to_yaml(config.load(EvalSettings, config.parse([f"scenario={scenario}"])))
    )


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undoes registrations and imports of a page's commands."""
    monkeypatch.setenv(registry.VARIABLE, "")
    monkeypatch.setenv(encoders.VARIABLE, "")
    monkeypatch.setenv(auxiliary.VARIABLE, "")
    monkeypatch.setattr(sys, "path", list(sys.path))
    known, modules = (*registry.names(), *encoders.encoder_names()), set(sys.modules)
    yield
    for name in set(encoders.encoder_names()) - set(known):
        encoders.unregister_encoder(name)
    for name in set(auxiliary.auxiliary_names()) - set(auxiliary.LOSSES):
        auxiliary.unregister_auxiliary(name)
    for name in set(registry.names()) - set(known):
        registry.unregister(name)
    for name in set(sys.modules) - modules:
        if not getattr(sys.modules[name], "__file__", None) or "examples" in str(
            sys.modules[name].__file__
        ):
            del sys.modules[name]


def shorter(text: str) -> str:
    """Returns the Python code with changes that shorten its run time."""
    for long, short in SHORTER.items():
        text = text.replace(long, short)
    return text


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the files to which the pages refer."""
    made = tmp_path_factory.mktemp("prepared")
    for skill in ("navigate", "pick"):
        trained(made, skill)
    for skill in ("pick", "objectnav"):
        cloned(made, skill)
    seeing(made, "pointnav")
    evaluated(made, "tidy_house")
    (made / "out" / "converted").mkdir()
    shutil.copy(ROOT / "skills" / "pretrained" / "pick.safetensors", made / "out" / "converted")
    shutil.copy(ROOT / "planner" / "domain.pddl", made / "FILE.pddl")
    return made


@pytest.fixture
def folder(request: pytest.FixtureRequest, prepared: Path, tmp_path: Path) -> Path:
    """Folder of a reader, with the files to which the pages refer."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    page = request.node.callspec.params["page"]
    if page.startswith("examples/"):
        shutil.copytree((ROOT / page).parent, tmp_path, dirs_exist_ok=True)
    if example := re.fullmatch(r"docs/add_an?_(\w+)\.md", page):
        # Commands of these pages run in the folder of their example, beside the other examples.
        shutil.copytree(ROOT / "examples", tmp_path / "examples")
        tmp_path = tmp_path / "examples" / example[1]
        trained(tmp_path, "come_near", "skill_modules=come_near.py")
        trained(tmp_path, "pointnav", "encoder_modules=coord_cnn.py")
    for block in BLOCKS:
        if block.page == page and block.title is not None:
            path = tmp_path / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
    return tmp_path


def commands(text: str) -> Iterator[list[str]]:
    """Yields the words of each line of a shell block, without comments; joins continued lines."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words


def inline_commands(page: str) -> Iterator[list[str]]:
    """Yields calls `tpsrl ...` in sentences that are more than the name of a command."""
    prose = re.sub(r"^ *```.*?^ *```$", "", (ROOT / page).read_text(), flags=re.M | re.S)
    for call in re.findall(r"`tpsrl ([^`]+)`", prose):
        words = call.split()
        placeholder = re.search(r"\.\.\.|\b[A-Z]{2,}\b", " ".join(w.split("=")[0] for w in words))
        if not placeholder and not any(f"{name} ".startswith(f"{call} ") for name in cli.COMMANDS):
            yield words


def check_tpsrl(words: list[str]) -> None:
    """Raises the `UserError` with which the command would end before it does anything."""
    if {"-h", "--help", "-V", "--version"} & set(words):
        assert cli.main(words) == 0
        return
    command, settings = cli.parse(words)
    if words[0] in CHEAP:
        # The linter returns 1 if it has findings.
        assert command.run(settings) in ((0, 1) if "lint=true" in words else (0,))


def check_make(words: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = [word for word in words if "=" not in word]
    assert all(f"\n{target}:" in makefile for target in targets), f"make {' '.join(targets)}"


def check_pip(words: list[str]) -> None:
    assert words[0] == "install"
    files = [name for option, name in itertools.pairwise(words) if option in ("-c", "-r")]
    assert all((ROOT / name).is_file() for name in files)


def check_python(words: list[str]) -> None:
    if words[0] == "-m":
        module = Path(*words[1].split("."))
        found = [ROOT / module.with_suffix(".py"), ROOT / module / "__main__.py"]
        known = any(path.is_file() for path in found)
        assert known or importlib.util.find_spec(words[1]) is not None, words[1]
    else:
        assert any((base / words[0]).is_file() for base in (Path.cwd(), ROOT)), words[0]


def check_tool(words: list[str]) -> None:
    """Accepts a tool that is installed beside this Python, with any arguments."""


def check_torchrun(words: list[str]) -> None:
    """Accepts torchrun's own options and checks the tpsrl command that it starts."""
    what = words.index("-m")
    assert all(word.startswith("--") for word in words[:what]) and words[what + 1] == "tpsrl"
    check_tpsrl(words[what + 2 :])


def check_sbatch(words: list[str]) -> None:
    """Checks the script, which comes with tpsrl, and the arguments that it passes to `train`."""
    script = next(i for i, word in enumerate(words) if not word.startswith("--"))
    assert (ROOT / words[script]).is_file(), words[script]
    check_tpsrl(["train", *words[script + 1 :]])


CHECKS: dict[str, Callable[[list[str]], None]] = {
    "tpsrl": check_tpsrl,
    "make": check_make,
    "pip": check_pip,
    "python": check_python,
    "pre-commit": check_tool,
    "pytest": check_tool,
    "jupyter": check_tool,
    "tensorboard": check_tool,
    "git": check_tool,
    "torchrun": check_torchrun,
    "sbatch": check_sbatch,
    "cd": check_tool,
}


def test_every_block_has_a_known_kind() -> None:
    fences = {page: len(re.findall(r"^ *```", (ROOT / page).read_text(), re.M)) for page in PAGES}
    found = collections.Counter(block.page for block in BLOCKS)
    assert fences == {page: 2 * found[page] for page in PAGES}
    assert [(b.where, b.kind) for b in BLOCKS if b.kind not in KINDS] == []


def test_every_data_block_can_be_parsed() -> None:
    refused = {}
    for block in BLOCKS:
        if block.kind in READERS:
            try:
                READERS[block.kind](block.text)
            except (ValueError, yaml.YAMLError) as error:
                refused[block.where] = error
    assert refused == {}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page in pages_with("shell") or any(inline_commands(page))]
)
def test_every_command_of_a_page_is_valid(
    page: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    for block in of(page, "shell"):
        for program, *words in commands(block.text):
            check = CHECKS.get(Path(program).name)
            assert check is not None, f"{block.where}: {program} is no command that we know of"
            check(words)
    for words in inline_commands(page):
        check_tpsrl(words)


@pytest.mark.parametrize("page", pages_with("python"))
def test_the_python_of_a_page_runs(page: str, folder: Path) -> None:
    found = [shorter(block.text) for block in of(page, "python")]
    scripts = [text for text in found if "__main__" in text]
    cells = "\n".join(text for text in found if text not in scripts)
    # Processes started by a cell import the script, which must not run the cells again.
    notebook = f"if __name__ == '__main__':\n    exec({cells!r}, globals())\n"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    (folder / "script.py").write_text("\n".join([*scripts, notebook]))
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_blocks_are_parsed_with_kind_title_and_line() -> None:
    text = '```python title="reach.py"\nx = 1\n```\n\n- or\n\n  ```shell\n  make test\n  ```\n'
    assert list(blocks("page.md", text)) == [
        Block("page.md", 1, "python", "reach.py", "x = 1\n"),
        Block("page.md", 7, "shell", None, "make test\n"),
    ]


@pytest.mark.parametrize("line", ["tpsrl eval pikc", "tpsrl eval pick num_episode=3", "tpsrl evl"])
def test_a_wrong_command_is_detected(line: str) -> None:
    (words,) = commands(f"{line}  # as the page says")
    with pytest.raises(UserError, match="did you mean"):
        check_tpsrl(words[1:])
