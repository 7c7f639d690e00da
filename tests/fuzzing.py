"""Fuzzed inputs of every command: valid command lines and files with changes.

A case is a command line with the files beside it. Its outcome is good if it is unambiguous: the
exit code is 0 (done), 1 (failed) or 2 (refused), a failure or refusal is one line that names
something, no unfinished files or processes remain, and the command ends.
"""

import copy
import dataclasses
import functools
import gzip
import importlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import habitat_files
from hypothesis import strategies as st

from eval.running.warmup import JOBS
from skills.starts.bank import Bank
from skills.starts.recorded import save_starts
from tpsrl import cli, config

ROOT = Path(__file__).parents[1]
LONGEST = 300  # characters of an error message
HUNG_S = 60.0
Files = Mapping[str, bytes]  # by path, relative to the command's folder


@dataclasses.dataclass(frozen=True)
class Case:
    """A command line and the files in its folder."""

    words: tuple[str, ...]
    files: Files
    large: bool = False  # may take long although valid
    instead: tuple[tuple[str, str], ...] = ()  # (file, kind of ODD that replaces it)

    def __hash__(self) -> int:
        return hash((self.words, tuple(self.files.items()), self.large, self.instead))

    def __repr__(self) -> str:
        notes = "".join(f"  # {name}: {kind}" for name, kind in self.instead)
        return shlex.join(("tpsrl", *self.words)) + notes


@dataclasses.dataclass(frozen=True)
class Line:
    """A valid command: its words, its settings, and the materials that it reads."""

    words: tuple[str, ...]
    settings: Mapping[str, str]
    reads: tuple[str, ...] = ()  # names of materials
    weight: int = 1


TINY_NET = {
    "preset.num_envs": "2", "preset.num_steps": "8", "preset.steps": "32",
    "preset.ppo.epochs": "1", "preset.ppo.minibatches": "1",
    "preset.policy.state_width": "8", "preset.policy.lstm_width": "8",
}  # fmt: skip
_TINY_HOME = {"num_objects": "1", "num_episodes": "1", "processes": "0", "threads": "1"}
_TRAIN = TINY_NET | _TINY_HOME | {
    "preset": "cpu_state", "device": "cpu", "validation_episodes": "0", "logger": "none",
    "out": "out",
}  # fmt: skip
_ONE = {"num_episodes": "1", "processes": "1", "out": "out"}
_EVAL = _ONE | {"agent": "scripted", "episodes": "episodes.jsonl.gz", "analysis_episodes": "0"}
_EVAL |= {"protocol.limits.episode_steps": "20", "after_timeout": "false"}
_SKILL = _ONE | {"agent": "zero", "num_objects": "1"}
CLONE = {
    "demos": "demos", "left_out": "none", "frames": "64",
    "validations": "1", "validation_episodes": "0",
    "preset.policy.lstm_width": "8", "preset.policy.state_width": "8",
    "preset.cloning.batch_frames": "32", "depth": "32", "num_objects": "1", "num_episodes": "1",
    "processes": "1", "threads": "1", "out": "out",
}  # fmt: skip
LINES = (
    Line(("eval", "tidy_house"), _EVAL, ("episodes",), 4),
    Line(("eval", "scenario.yaml"), _EVAL, ("episodes", "scenario"), 2),
    Line(("eval", "navigate"), _SKILL, (), 3),
    Line(("eval", "pick"), _SKILL | {"agent": "training"}, ("training",), 1),
    Line(("eval", "navigate"), _SKILL | {"agent": "training"}, ("training",), 3),
    Line(("video", "navigate"), _SKILL, (), 1),
    Line(("video", "tidy_house"), _EVAL, ("episodes",), 1),
    Line(("plan", "tidy_house"), {"episodes": "episodes.jsonl.gz"}, ("episodes",), 3),
    Line(("plan", "scenario.yaml"), {"episodes": "episodes.jsonl.gz"}, ("episodes", "scenario"), 2),
    Line(
        ("plan", "tidy_house"),
        {"episodes": "episodes.jsonl.gz", "domain": "domain.pddl"},
        ("episodes", "domain"),
        4,
    ),
    Line(("plan", "tidy_house"), {"lint": "true", "domain": "habitat"}, (), 1),
    Line(
        ("plan", "tidy_house"),
        {"episodes": "episodes.jsonl.gz", "goal": "object_at(obj_1, goal_1)"},
        ("episodes",),
        2,
    ),
    Line(("episodes", "tidy_house"), {"num": "1", "processes": "1", "out": "new.jsonl.gz"}, (), 2),
    Line(("episodes", "scenario.yaml"), {"num": "1", "processes": "1"}, ("scenario",), 3),
    Line(("episodes",), {"import": "habitat.json.gz", "out": "new.jsonl.gz"}, ("habitat",), 4),
    Line(("report", "report"), {}, ("report",), 4),
    Line(("report", "report", "report"), {"out": "out"}, ("report",), 2),
    Line(("train", "navigate"), _TRAIN, (), 6),
    Line(("train",), {"resume": "training", "preset.steps": "48"}, ("training",), 4),
    Line(("train", "navigate"), _TRAIN | {"init": "training"}, ("training",), 2),
    Line(
        ("train", "flee"),
        _TRAIN | {"preset": "cpu_fast", "depth": "64", "encoder": "shipped.safetensors"},
        ("shipped",),
        1,
    ),
    Line(
        ("train", "navigate"),
        _TRAIN | {"start_states": "starts.npz", "num_objects": "30"},  # as in the bank
        ("starts",),
        2,
    ),
    Line(("train", "navigate"), _TRAIN | {"demos": "demos"}, ("demos",), 2),
    Line(
        ("demos", "navigate"),
        {
            "num": "1",
            "depth": "8",
            "horizon": "3",
            "num_objects": "1",
            "num_episodes": "1",
            "processes": "1",
            "out": "out",
        },
        (),
        2,
    ),
    Line(("clone", "navigate"), CLONE, ("demos",), 4),
    Line(("export", "navigate"), {"agent": "training", "out": "out"}, ("training",), 2),
    Line(("export", "navigate"), {"agent": "shipped.safetensors", "out": "o"}, ("shipped",), 2),
    Line(("hub", "push", "./hub"), {"repo": "./repo"}, ("hub",), 1),
    Line(("hub", "pull"), {"repo": "./hub", "out": "out"}, ("hub",), 2),
    Line(
        ("bank", "tidy_house"),
        _ONE
        | {"split": "val", "episodes": "episodes.jsonl.gz", "protocol.limits.episode_steps": "400"},
        ("episodes",),
        1,
    ),
    Line(("bench", "sim"), {"seconds": "0.1", "processes": "1", "out": "out"}, (), 1),
    Line(
        ("bench", "train"),
        {
            "task": "synthetic_busy",
            "collector": "sync",
            "preset": "synthetic",
            "rollouts": "1",
            "turns": "1",
            "warm_up": "1",
            "processes": "0",
            "preset.num_envs": "2",
            "out": "out",
            "preset.num_steps": "8",
        },
        (),
        1,
    ),
    Line(("warmup",), {}, (), 1),
    Line(("doctor",), {}, (), 1),
)

# Unexpected values of settings.
NUMBERS = (
    "0", "1", "-1", "2", "3", "0.5", "1.5", "1e3", "1e30", "-1e30", "1e400", "nan", "NaN", ".nan",
    "inf", "-inf", ".inf", "1_000", "0x10", "0b1", "0o7", "1e-400", "-0", "007", "1,000", "10**9",
    "100000", "10000000", "1000000000", "9223372036854775807", "9223372036854775808",
    "18446744073709551616", "1" + "0" * 30, "1" + "0" * 308, "7" * 400, "7" * 5000, "-" + "9" * 400,
)  # fmt: skip
TEXTS = (
    "", " ", "null", "~", "none", "None", "true", "false", "yes", "???", "${oc.env:HOME}", "${a}",
    "[]", "{}", "[1,2", "{a: b}", "[[[[[[]]]]]]", "[" * 3000, "{a: " * 500, "&a [*a]", "*a",
    "!!int x",
    "!!python/object/apply:os.system [id]", "- a", "a: b: c", "'", '"', "\\", "\t", "\n", "a\nb",
    "\x1b[31mred", "\x07", "\x7f", "\u202e", "é", "日本語", "\ud800", "\udcff", "😀", "%s%n",
    "{0}", "{}{}",
    "a" * 300, "ü" * 200, "x" * 20000, "2026-01-01", "1:30", "=", "==", "a=b", ",", ",,,", ":",
    "a:b",
    "own:0.5", "own:nan",
    "bank:/proc/nowhere/pick", "bank:.:1", "own:1,own:1", "horizon:0", "horizon:x",
    "horizon:nan", "force:inf", "own:1,rearranged:1",
    "pick", "pikc", "cpu_small", "tidy_house", "all", "skills", "habitat", "scripted", "pretrained",
    "random", "sync", "ver", "auto", "val", "test", "1,2,3",
)  # fmt: skip
PATHS = (
    "/dev/null", "/dev/zero", "/dev/full", "/dev/stdin", "/proc/self/mem", "/proc/version",
    "/proc/nowhere", "/proc/nowhere/x.yaml", ".", "..", "/", "./", "a/../b",
    "~", "~/x", "~nosuchuser",
    "~nosuchuser/x.yaml", "file://", "file:///nowhere", "https://nowhere.invalid/x", "out/",
    "a" * 256,
    "a/" * 2100, "x\ny.yaml", "pipe", "pipe.yaml", "loop", "loop/x", "folder", "folder.yaml",
    "folder.jsonl.gz", "folder.py", "empty", "empty.yaml", "empty.pddl", "empty.npz", "empty.py",
    "empty.jsonl.gz", "empty.safetensors", "binary", "binary.yaml", "binary.pddl", "binary.npz",
    "binary.safetensors", "binary.jsonl.gz", "binary.py", "raises.py", "exits.py", "/proc",
    "/sys/x",
    "/proc/self/fd/0", "training/checkpoints", "training/config.yaml", "episodes.jsonl.gz", "demos",
)  # fmt: skip
# Settings for which a valid value may take too long.
_LARGE = re.compile(
    r"(num|num_episodes|steps|num_steps|frames|rounds|round_episodes|num_envs|epochs|episodes|"
    r"videos|seconds|rollouts|turns|warm_up|seeds|simulate|ranks|validation_episodes|validations|"
    r"processes|minibatches|depth|num_objects|timeout_s|.*_width|.*_layers|.*_steps|horizon|"
    r"analysis_.*|hang_s|value_.*|validate_every|inference_workers|preset|agent|skills\..*|task|"
    r"scenario|only|collector|.*_s|episode|delay|batch|length|max_failures|what|domain|goal)"
)


ODD: Mapping[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "loop": lambda path: path.symlink_to(path.name),
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "unreadable": lambda path: path.symlink_to("/proc/self/mem"),
}


def specials(folder: Path) -> None:
    """Creates special and malformed files in the folder of a command."""
    os.mkfifo(folder / "pipe")
    os.mkfifo(folder / "pipe.yaml")
    (folder / "loop").symlink_to("loop")
    for name in ("folder", "folder.yaml", "folder.jsonl.gz", "folder.py"):
        (folder / name).mkdir()
    for name in ("empty", "empty.yaml", "empty.pddl", "empty.npz", "empty.py", "empty.jsonl.gz"):
        (folder / name).write_bytes(b"")
    (folder / "empty.safetensors").write_bytes(b"")
    for name in ("yaml", "pddl", "npz", "safetensors", "jsonl.gz", "py"):
        (folder / f"binary.{name}").write_bytes(bytes(range(256)) * 20)
    (folder / "binary").write_bytes(bytes(range(256)) * 20)
    (folder / "raises.py").write_text("raise ZeroDivisionError('of a module')\n")
    (folder / "exits.py").write_text("import sys\n\nsys.exit('of a module')\n")


# Materials


def make_materials(folder: Path, server: "Server | None" = None) -> dict[str, Files]:
    """Makes valid files of every kind that commands read, and returns them by name.

    Args:
        folder: of the files; existing ones are used again
        server: runs the commands faster, if given; `folder` must be below its folder
    """
    folder.mkdir(parents=True, exist_ok=True)
    calls = {
        "episodes": ("episodes", "tidy_house", "num=1", "num_objects=5", "out=episodes.jsonl.gz"),
        "training": ("train", "navigate", *pairs(_TRAIN | {"out": "training"})),
        "demos": (
            "demos", "navigate", "num=2", "depth=32", "horizon=60", "num_objects=1",
            "num_episodes=1", "processes=1", "out=demos",
        ),
        "report": ("eval", "tidy_house", *pairs(_EVAL | {"out": "report"})),
        "bank": (
            "bank", "tidy_house", *pairs(_ONE | {"episodes": "episodes.jsonl.gz",
            "out": "bank", "split": "val"}),
            "protocol.limits.episode_steps=900",
        ),
    }  # fmt: skip
    for name, call in calls.items():
        if not any(p.name.startswith(name) for p in folder.iterdir()):
            if server is not None:
                assert server.ask(call, folder, HUNG_S)["code"] == 0, call
                continue
            command = [sys.executable, "-m", "tpsrl", *call]
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    if not (folder / "habitat.json.gz").is_file():
        habitat_files.write(folder / "habitat.json.gz", habitat_files.record())
        shutil.copy(ROOT / "configs/scenario/prepare_groceries.yaml", folder / "scenario.yaml")
        text = (folder / "scenario.yaml").read_text()
        (folder / "scenario.yaml").write_text(text.replace("prepare_groceries", "my_scenario"))
        shutil.copy(ROOT / "planner/domain.pddl", folder / "domain.pddl")
        shutil.copy(ROOT / "skills/pretrained/navigate.safetensors", folder / "shipped.safetensors")
        (folder / "hub").mkdir()
        for suffix in ("safetensors", "md"):
            shutil.copy(ROOT / f"skills/pretrained/navigate.{suffix}", folder / "hub")
        save_starts(folder / "starts.npz", Bank(folder / "bank/pick", "navigate")[:2])
    found = {}
    for path in sorted(folder.iterdir()):
        files = [p for p in ([path] if path.is_file() else sorted(path.rglob("*"))) if p.is_file()]
        own = {str(p.relative_to(folder)): p.read_bytes() for p in files}
        found[path.name.partition(".")[0]] = own
    return found


def pairs(settings: Mapping[str, str]) -> list[str]:
    """Returns settings as `key=value` words."""
    return [f"{key}={value}" for key, value in settings.items()]


# Cases


KINDS = ("value", "path", "key", "words", "file")  # of changes


def cases(
    materials: Mapping[str, Files], lines: Sequence[Line] = LINES, changes: Sequence[str] = KINDS
) -> st.SearchStrategy[Case]:
    """Returns a strategy of lines with up to three changes.

    Args:
        materials: files by name, see `make_materials`
        lines: to change
        changes: kinds of changes, of `KINDS`
    """
    weighted = [line for line in lines for _ in range(line.weight)]

    @st.composite
    def draw_case(draw: Callable[..., Any]) -> Case:
        line = draw(st.sampled_from(weighted))
        words, settings = list(line.words), list(line.settings.items())
        files = {k: v for name in line.reads for k, v in materials[name].items()}
        large = False
        instead: dict[str, str] = {}
        for _ in range(draw(st.sampled_from((0, 1, 1, 1, 1, 2, 2, 3)))):
            often = {"value": 3, "file": 4 if files else 0}
            kinds = [kind for kind in changes for _ in range(often.get(kind, 1))]
            kind = draw(st.sampled_from(kinds))
            if kind == "file":
                name = draw(st.sampled_from(sorted(files)))
                if draw(st.integers(0, 9)) == 0:
                    instead[name] = draw(st.sampled_from(sorted(ODD)))
                else:
                    files[name] = draw(changed_file(name, files[name]))
            elif kind == "words":
                words = draw(_changed_words(words))
                large = True  # another command has its default sizes
            else:
                key, value = draw(_setting(line, kind))
                large |= bool(_LARGE.fullmatch(key.rpartition(".")[2])) or "." in value
                settings.append((key, value))
        found = [*words, *(f"{key}={value}" for key, value in settings)]
        # A shell cannot pass zero bytes, and surrogates only as substitutes of bytes that are not
        # UTF-8.
        found = [w.replace("\0", "").replace("\ud800", "\udcff") for w in found]
        return Case(tuple(found), files, large, tuple(instead.items()))

    return draw_case()


def _keys(line: Line) -> list[str]:
    """Returns the keys of the settings of a line's command."""
    name = " ".join(line.words[: 2 if line.words[0] in ("hub", "bench") else 1])
    module = importlib.import_module(cli.COMMANDS[name][0])
    word = line.words[1] if len(line.words) > 1 else None
    word = "tidy_house" if word == "scenario.yaml" else word
    command = module.choose(word) if hasattr(module, "choose") else module.COMMAND
    schema = command.settings
    tops = [config._key(f.name) for f in config._fields(schema)]
    return sorted({*config._leaf_keys(schema), *tops, "import"})


_KEYS: dict[tuple[str, ...], list[str]] = {}


def _setting(line: Line, kind: str) -> st.SearchStrategy[tuple[str, str]]:
    if line.words not in _KEYS:
        _KEYS[line.words] = _keys(line)
    keys = _KEYS[line.words] or ["x"]
    key = st.one_of(st.sampled_from(keys), st.sampled_from(sorted(line.settings) or keys))
    if kind == "path":
        likely = [k for k in keys if k in _PATH_KEYS]
        return st.tuples(st.sampled_from(likely or keys), st.sampled_from(PATHS))
    if kind == "key":
        return st.tuples(key.flatmap(_misspelt), st.sampled_from(NUMBERS[:4] + TEXTS[:4]))
    value = st.one_of(
        st.sampled_from(NUMBERS),
        st.sampled_from(NUMBERS),
        st.sampled_from(TEXTS),
        st.sampled_from(PATHS),
        st.integers().map(str),
        st.floats().map(str),
        st.text(max_size=12),
    )
    return st.tuples(key, value)


_PATH_KEYS = (
    "agent", "demos", "domain", "encoder", "encoder_modules", "episodes", "evaluation", "folder",
    "import", "init", "out", "plan", "repo", "resume", "scenario", "skill_modules", "start_states",
    "starts", "validation_starts", "what", "write",
)  # fmt: skip


def _misspelt(key: str) -> st.SearchStrategy[str]:
    at = st.integers(0, len(key))
    letter = st.sampled_from("aex_.-0 \u00e9\x07")
    return st.one_of(
        st.tuples(at, letter).map(lambda d: key[: d[0]] + d[1] + key[d[0] :]),
        at.map(lambda i: key[:i] + key[i + 1 :]),
        st.sampled_from([f"{key}.x", f".{key}", f"{key}.", f"{key}[0]", key.upper(), f"+{key}"]),
        st.sampled_from([f"--{key}", "", "a" * 400, "__class__", "name", "preset.name", "self"]),
    )


def _changed_words(words: Sequence[str]) -> st.SearchStrategy[list[str]]:
    odd = st.one_of(
        st.sampled_from(TEXTS + PATHS),
        st.sampled_from(("-v", "--out=x", "-", "--", "-h", "--help", "--version", "help")),
        st.sampled_from(("navigate", "pick", "explore", "monolithic", "set_table", "bench", "hub")),
    )
    if not words:
        return odd.map(lambda w: [w])
    at = st.integers(0, len(words) - 1)
    return st.one_of(
        odd.map(lambda w: [*words, w]),
        at.map(lambda i: [*words[:i], *words[i + 1 :]]),
        st.tuples(at, odd).map(lambda d: [*words[: d[0]], d[1], *words[d[0] + 1 :]]),
        st.tuples(at, st.sampled_from(("", "x", "s", "\x1b[1m"))).map(
            lambda d: [*words[: d[0]], words[d[0]] + d[1], *words[d[0] + 1 :]]
        ),
    )


# Files


def changed_file(name: str, data: bytes) -> st.SearchStrategy[bytes]:
    """Returns a strategy of changed contents of a file, by the type in its name."""
    try:
        return st.one_of(_ways(name, data))
    except (
        ValueError, EOFError, OSError, zlib.error, zipfile.BadZipFile, RecursionError, LookupError,
        AttributeError, TypeError,
    ):  # fmt: skip
        return changed_bytes(data)  # an earlier change made it invalid


def _ways(name: str, data: bytes) -> list[st.SearchStrategy[bytes]]:
    ways = [changed_bytes(data)]
    suffixes = Path(name).suffixes
    if suffixes[-1:] == [".gz"]:
        inner = name.removesuffix(".gz")
        ways += [_repacked(changed_file(inner, gzip.decompress(data)))] * 3
        ways += [st.just(gzip.decompress(data)), st.just(gzip.compress(data, mtime=0))]
        ways += [st.builds(_bomb)] if len(data) < 10**4 else []
    elif suffixes[-1:] == [".json"]:
        ways += [changed_json(json.loads(data))] * 4
    elif suffixes[-1:] == [".jsonl"]:
        ways += [_changed_line(data)] * 4
    elif suffixes[-1:] in ([".yaml"], [".pddl"], [".py"], [".md"], [".csv"]):
        ways += [changed_text(data.decode())] * 4
    elif suffixes[-1:] == [".safetensors"]:
        ways += [_changed_header(data)] * 4
    elif suffixes[-1:] == [".npz"]:
        ways += [_changed_npz(data)] * 2
    return ways


@functools.cache
def _bomb() -> bytes:
    """Returns a small gzip file that unpacks to 200 MB."""
    return gzip.compress(bytes(2 * 10**8), mtime=0)


def changed_bytes(data: bytes) -> st.SearchStrategy[bytes]:
    """Returns a strategy of bytes that are truncated, flipped, inserted or replaced."""
    at = st.integers(0, max(len(data) - 1, 0))
    return st.one_of(
        at.map(lambda i: data[:i]),
        st.tuples(at, st.integers(1, 255)).map(
            lambda d: (
                data[: d[0]] + bytes([data[d[0]] ^ d[1]]) + data[d[0] + 1 :] if data else b"\1"
            )
        ),
        st.tuples(at, st.binary(min_size=1, max_size=40)).map(
            lambda d: data[: d[0]] + d[1] + data[d[0] :]
        ),
        st.sampled_from(
            (b"", b"\0" * 64, b"\xff\xfe", b"null", b"[]", b"{}", b"\x80\x04N.", b"PK")
        ),
    )


def _repacked(content: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return content.map(lambda data: gzip.compress(data, compresslevel=1, mtime=0))


_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 1.5, 1e30, -1e30, 1e308, 10**30, int("7" * 400), 2**63, "", " ",
    "x", "\ud800", "\x1b[31m", "a\nb", "pick", "1", "nan", [], {}, [1], [None], {"a": 1}, [[1,
    2], [3]],
    float("nan"), float("inf"), -float("inf"), "a" * 1000, "../../x", "/etc/passwd", [0.0] * 1000,
)  # fmt: skip
_DEEP = "[" * 5000 + "]" * 5000


def changed_json(tree: Any) -> st.SearchStrategy[bytes]:
    """Returns a strategy of JSON with one to three entries changed, missing or repeated."""

    @st.composite
    def change(draw: Callable[..., Any]) -> bytes:
        new = json.loads(json.dumps(tree))
        deep = False
        for _ in range(draw(st.sampled_from((1, 1, 1, 2, 3)))):
            places = list(_places(new))
            if not places:
                return json.dumps(draw(st.sampled_from(_VALUES))).encode()
            owner, key = places[draw(st.integers(0, len(places) - 1))]
            way = draw(
                st.sampled_from(("value", "value", "value", "near", "gone", "twice", "deep"))
            )
            if way == "gone":
                del owner[key]
            elif way == "twice" and isinstance(owner, list):
                owner.insert(key, copy.deepcopy(owner[key]))
            elif way == "twice":
                owner[f"{key}x"] = copy.deepcopy(owner[key])
            elif way == "deep":
                owner[key], deep = "@deep@", True
            elif way == "near":
                owner[key] = draw(_near(owner[key]))
            else:
                owner[key] = copy.deepcopy(draw(st.sampled_from(_VALUES)))
        text = json.dumps(new)
        return (text.replace('"@deep@"', _DEEP) if deep else text).encode()

    return change()


def _near(value: Any) -> st.SearchStrategy[Any]:
    """Returns a strategy of values similar to a given one."""
    if isinstance(value, bool) or value is None:
        return st.sampled_from((0, 1, "true", None))
    if isinstance(value, int):
        return st.sampled_from(
            (value + 1, -value, value + 0.5, float(value), str(value), value * 100)
        )
    if isinstance(value, float):
        return st.sampled_from((-value, value * 1000, value + 100.0, int(value), str(value)))
    if isinstance(value, str):
        return st.sampled_from((value + "x", value[:-1], value.upper(), [value], "\n" + value))
    if isinstance(value, list):
        return st.sampled_from((value[:-1], value + value, value[::-1], {"0": value}, [value]))
    return st.sampled_from(([value], list(value), {}))


def _places(tree: Any) -> Any:
    """Yields (list or object, index or key) of every entry, at most 2,000."""
    todo, count = [tree], 0
    while todo:
        node = todo.pop()
        keys = (
            node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        )
        for key in keys:
            yield node, key
            todo.append(node[key])
            count += 1
            if count == 2000:
                return


def _changed_line(data: bytes) -> st.SearchStrategy[bytes]:
    """Returns a strategy of JSON lines, one of which is changed, missing or repeated."""
    lines = data.splitlines()

    @st.composite
    def change(draw: Callable[..., Any]) -> bytes:
        at = draw(st.integers(0, max(len(lines) - 1, 0)))
        if not lines:
            return draw(changed_bytes(data))
        way = draw(
            st.sampled_from(("json", "json", "json", "json", "bytes", "gone", "twice", "blank"))
        )
        if way == "json" and _is_json(lines[at]):
            new = [draw(changed_json(json.loads(lines[at])))]
        elif way in ("json", "bytes"):
            new = [draw(changed_bytes(lines[at]))]
        else:
            new = {"gone": [], "twice": [lines[at], lines[at]], "blank": [b""]}[way]
        return b"\n".join([*lines[:at], *new, *lines[at + 1 :]]) + b"\n"

    return change()


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


_TOKEN = re.compile(r"[\w.+-]+|[^\w\s]|\s+")


def changed_text(text: str) -> st.SearchStrategy[bytes]:
    """Returns a strategy of YAML, PDDL or similar with tokens changed, missing or repeated."""
    tokens = _TOKEN.findall(text)

    @st.composite
    def change(draw: Callable[..., Any]) -> bytes:
        new = list(tokens)
        for _ in range(draw(st.sampled_from((1, 1, 2, 3)))):
            at = draw(st.integers(0, max(len(new) - 1, 0)))
            if not new:
                return b"x"
            way = draw(st.sampled_from(("other", "value", "gone", "twice", "letters")))
            if way == "other":
                new[at] = tokens[draw(st.integers(0, len(tokens) - 1))]
            elif way == "value":
                new[at] = draw(st.one_of(st.sampled_from(NUMBERS), st.sampled_from(TEXTS)))
            elif way == "letters":
                new[at] += draw(st.sampled_from("xyz()[]{}:;-?&*!'\"#\t\n\0é"))
            else:
                new[at] *= 0 if way == "gone" else 2
        return "".join(new).encode(errors="surrogatepass")

    return change()


def _changed_header(data: bytes) -> st.SearchStrategy[bytes]:
    """Returns a strategy of safetensors files with a changed header or metadata entry."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    body = data[8 + size :]

    def packed(text: bytes) -> bytes:
        return len(text).to_bytes(8, "little") + text + body

    ways = [changed_json(header).map(packed)]
    meta = header.get("__metadata__", {})
    for key, text in meta.items():
        if not isinstance(text, str):  # an earlier change
            continue
        try:
            inner = json.loads(text)
        except ValueError:
            continue

        def noted(new: bytes, key: str = key) -> bytes:
            note = {**meta, key: new.decode()}
            return packed(json.dumps({**header, "__metadata__": note}).encode())

        ways += [changed_json(inner).map(noted)] * 3
    nothing = len(data).to_bytes(8, "little")
    nan = data[: 8 + size] + b"\xff" * len(body)
    ways.append(st.sampled_from((b"\xff" * 8 + data[8:], nothing + data[8:], nan)))
    return st.one_of(ways)


def _changed_npz(data: bytes) -> st.SearchStrategy[bytes]:
    """Returns a strategy of npz files with one array missing, damaged, reshaped or pickled."""
    import numpy as np

    with np.load(io.BytesIO(data), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}

    @st.composite
    def change(draw: Callable[..., Any]) -> bytes:
        new = dict(arrays)
        name = draw(st.sampled_from(sorted(new)))
        old = new[name]
        way = draw(
            st.sampled_from(("gone", "empty", "flat", "text", "nan", "objects", "more", "huge"))
        )
        if way == "gone":
            del new[name]
        elif way == "nan":
            new[name] = np.full(old.shape, np.nan)
        elif way == "objects":
            new[name] = np.array([{"a": 1}, None], object)
        else:
            others = {
                "empty": old[:0] if old.ndim else np.zeros(0), "flat": old.reshape(-1),
                "text": np.array(["x"]), "more": np.concatenate([old.reshape(-1)] * 2),
                "huge": np.full(old.shape, 10**12),
            }  # fmt: skip
            new[name] = others[way]
        file = io.BytesIO()
        np.savez(file, **new)
        return file.getvalue()

    return change()


# Running and judging


def write(files: Files, folder: Path) -> None:
    """Writes files into a folder."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


class Server:
    """A process that runs each command in its own fork, in folders below `folder`.

    It creates `folder` if necessary. The `jobs` of `eval.running.warmup` run first, so that
    commands need not compile again.
    """

    def __init__(self, folder: Path, jobs: Iterable[str] = tuple(JOBS)) -> None:
        path = [str(ROOT), *sys.path]
        folder.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("command_server.py")),
                str(folder),
                *jobs,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": ":".join(filter(None, path)), "COLUMNS": "200"},
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def run(self, case: Case, folder: Path, limit_s: float) -> dict[str, Any]:
        """Writes the files of a case, runs its command, and returns the answer."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        specials(folder)
        write(case.files, folder)
        for name, kind in case.instead:
            (folder / name).unlink()
            ODD[kind](folder / name)
        return self.ask(case.words, folder, limit_s)

    def ask(
        self, words: Sequence[str], folder: Path, limit_s: float, **more: Any
    ) -> dict[str, Any]:
        """Runs a command and returns the answer; see `command_server`."""
        request = {"arguments": words, "folder": str(folder), "limit_s": limit_s, **more}
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps(request).encode() + b"\n")
        stdin.flush()
        found: dict[str, Any] = json.loads(stdout.readline())
        return found

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


UNFINISHED = re.compile(r"(^|/)\.[^/]*(tmp|unfinished|probe|lock|running)|(^|/)\.running")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def judge(case: Case, found: Mapping[str, Any], folder: Path) -> list[str]:
    """Returns the faults of a case's outcome; [] if there are none."""
    wrong = []
    err, code, how = found["err"], found["code"], found["how"]
    lines = err.splitlines()
    if "Traceback" in err or "Traceback" in found["out"]:
        last = [
            line for line in (err + found["out"]).splitlines() if re.match(r"\w[\w.]*(:|$)", line)
        ]
        wrong.append(f"traceback: {last[-1][:150] if last else ''}")
    elif how == "hung":
        wrong.append("hangs, even when it is told to end")
    elif how == "terminated":
        if not case.large:
            wrong.append(f"takes more than {HUNG_S:.0f} s")
    elif code not in (0, 1, 2):
        wrong.append(f"exit code {code}: {err[-150:]}")
    elif code == 2 and not (len(lines) == 1 and err.startswith("tpsrl: error: ")) and case.words:
        if "usage:" not in found["out"]:
            wrong.append(f"a refusal of {len(lines)} lines: {err[:150]!r}")
    elif code == 1 and len(lines) > 1:
        wrong.append(f"a failure of {len(lines)} lines: {err[:300]!r}")
    elif code == 0 and err:
        wrong.append(f"done, and complains: {err[:150]!r}")
    if code in (1, 2) and how == "ended" and lines and len(lines[0]) > LONGEST + 14:
        wrong.append(f"an error of {len(lines[0])} characters: {lines[0][:100]}")
    if _CONTROL.search(err) and "Traceback" not in err:
        wrong.append(f"control characters: {err[:150]!r}")
    left = [str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_fifo()]
    left = [name for name in left if UNFINISHED.search(name)]
    if left and how == "ended":
        wrong.append(f"left behind: {', '.join(left[:4])}")
    if code == 2 and how == "ended":
        new = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
        own = ("binary", "empty", "raises", "exits", "__pycache__")  # Python makes __pycache__
        new -= {*case.files} | {n for n in new if n.startswith(own)}
        if new:
            wrong.append(f"half-written: {', '.join(sorted(new)[:4])}")
    if found["left"]:
        wrong.append(f"processes left: {found['left'][:2]}")
    if found["shared"]:
        wrong.append(f"in shared memory: {found['shared'][:2]}")
    return wrong


def keep(case: Case, folder: Path, to: Path) -> None:
    """Packs a case with its files, so that it can be repeated."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(to, "w:gz") as archive:
        for name in case.files:
            archive.add(folder / name, name)
        line = repr(case).encode(errors="backslashreplace")
        entry = tarfile.TarInfo("command.txt")
        entry.size = len(line)
        archive.addfile(entry, io.BytesIO(line))
