"""Commands killed at random moments: leftovers, exit codes, and resumption.

    python -m benchmarks.kills [kills=100] [seed=0] [only=train_sync,...] [signals=SIGTERM,...]
                               [anew=10] [out=out/kills]

Each command first runs undisturbed, then is killed `kills` times at random moments within its
duration. The signals alternate: KILL, TERM, INT to all of its processes as from a terminal, and
TERM to all as from `timeout` or the end of a job. Every `anew`-th run is a new process; the others
are forks of a process that has imported all modules, so that signals arrive during the command's
work. After each kill:

- the command and all of its processes end within 5 s;
- no new shared memory remains;
- TERM and INT end the command with exit code 143 and 130 and one line of text, unless it was
  already done;
- the command is run again, resumes or starts over, ends with exit code 0, and its output equals
  that of the undisturbed run;
- no temporary file or folder remains, neither next to the results nor in the temporary folder.

Prints one line per command, and each kind of failure once. The exit code is 1 if there was a
failure.
"""

import collections
import dataclasses
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import Signals
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import fuzzing

DEFAULTS = {
    "kills": "100",
    "seed": "0",
    "only": "",
    "signals": "",
    "anew": "10",
    "out": "out/kills",
}
SIGNALS = {"SIGKILL": -9, "SIGTERM": 143, "SIGINT to all": 130, "SIGTERM to all": 143}
MOST_S = 5.0  # maximum time for a command to end
LIMIT_S = 120.0  # of an undisturbed run
_TIMES = (
    "waits",
    "seconds",
    "_s",
    "per_second",
    "fps",
    "time",
)  # suffixes of keys whose values differ between runs
_KEPT = ("here", ".cache", ".config")  # the folder also serves as home directory of the user
_SKIPPED = {"timing.json", "curve.png", "config.yaml", "bench.json", "tensorboard"}


@dataclasses.dataclass(frozen=True)
class Killed:
    """A command, the files it reads, and how it is run again after a kill."""

    words: tuple[str, ...]
    reads: tuple[str, ...] = ()
    again: tuple[str, ...] = ()  # additional words of the second run
    exact: bool = True  # the output is the same every time

    def then(self) -> tuple[str, ...]:
        """Returns the words of the run after a kill."""
        return (*self.words, *self.again)


def _words(text: str, **settings: str) -> tuple[str, ...]:
    return (*text.split(), *fuzzing.pairs(settings))


_NET = fuzzing.TINY_NET | {"preset.num_envs": "4", "preset.steps": "320"}
_TRAIN = _NET | {
    "preset": "cpu_state", "num_objects": "1", "num_episodes": "2", "threads": "1", "device": "cpu",
    "validate_every": "128", "validation_episodes": "2", "logger": "none", "out": "out",
    "checkpoint_minutes": "0.002",
}  # fmt: skip
_WORKERS = _TRAIN | {"validate_every": "320"}  # one validation: its workers start slowly
_EPISODES = {"episodes": "episodes.jsonl.gz", "num_episodes": "1", "out": "out"}
_SCENARIO = _EPISODES | {"protocol.limits.episode_steps": "150", "after_timeout": "false"}
_ON = ("resume=auto",)
COMMANDS = {
    "episodes": Killed(_words("episodes tidy_house num=4 processes=2 out=new.jsonl.gz")),
    "eval": Killed(
        _words("eval tidy_house processes=2 videos=1 analysis_episodes=1", **_SCENARIO),
        ("episodes",),
    ),
    "eval_one_process": Killed(
        _words("eval tidy_house processes=1 analysis_episodes=0", **_SCENARIO), ("episodes",)
    ),
    "eval_skill": Killed(
        _words("eval navigate agent=training num_episodes=4 processes=2 videos=1 num_objects=1"),
        ("training",),
    ),
    "video": Killed(
        _words("video navigate agent=zero num_episodes=2 num_objects=1 processes=1 out=out")
    ),
    "bank": Killed(_words("bank tidy_house split=val processes=1", **_SCENARIO), ("episodes",)),
    "train_sync": Killed(
        _words("train navigate processes=0", **_TRAIN, **{"preset.collector": "sync"}), again=_ON
    ),
    "train_batch": Killed(
        _words("train navigate", **_TRAIN, **{"preset.collector": "batch"}), again=_ON
    ),
    "train_workers": Killed(
        _words("train navigate processes=2", **_WORKERS, **{"preset.collector": "sync"}), again=_ON
    ),
    "train_ver": Killed(
        _words("train navigate processes=2", **_WORKERS, **{"preset.collector": "ver"}),
        again=_ON,
        exact=False,
    ),
    "train_ranks": Killed(
        _words(
            "train navigate processes=1 ranks=2 preset.preempt=none",
            **(_WORKERS | {"preset.collector": "sync"}),
        ),
        again=_ON,
        exact=False,
    ),
    "demos": Killed(
        _words("demos navigate num=4 depth=8 horizon=20 num_objects=1 num_episodes=2"),
    ),
    "clone": Killed(
        _words("clone navigate", **(fuzzing.CLONE | {"frames": "512", "validations": "2"})),
        ("demos",),
    ),
    "export": Killed(_words("export navigate agent=training out=out"), ("training",)),
    "hub_push": Killed(_words("hub push ./hub repo=./repo"), ("hub",)),
    "hub_pull": Killed(_words("hub pull repo=./hub out=out"), ("hub",)),
    "report": Killed(_words("report report"), ("report",)),
    "plan": Killed(_words("plan tidy_house episodes=episodes.jsonl.gz"), ("episodes",)),
    "bench_sim": Killed(_words("bench sim seconds=0.1 processes=2 out=out"), exact=False),
    "bench_train": Killed(
        _words(
            "bench train task=synthetic_busy collector=ver preset=synthetic rollouts=2 turns=1 "
            "warm_up=1 processes=2 preset.num_envs=4 preset.num_steps=8 out=out"
        ),
        exact=False,
    ),
}


class Tried:
    """Runs a command undisturbed, then with kills or on full disks."""

    def __init__(
        self,
        command: Killed,
        server: fuzzing.Server,
        materials: Mapping[str, fuzzing.Files],
        folder: Path,
    ) -> None:
        self._command, self._server, self._folder = command, server, folder
        self._files = {k: v for name in command.reads for k, v in materials[name].items()}
        for _ in range(2):  # the second run finds the first run's cache
            self._prepare()
            begun = time.time()
            found = self._ask(command.words)
            assert found["code"] == 0, f"{command.words}: {found}"
        self.seconds = float(found["seconds"])
        self._expected = self._result()
        files = [p.stat() for p in (folder / "here").rglob("*") if p.is_file()]
        self.written = sum(file.st_size for file in files if file.st_mtime >= begun)  # bytes

    def kill(self, signal: str, at_s: float, anew: bool) -> list[str]:
        """Kills the command at a moment; returns the problems found."""
        self._prepare()
        found = self._ask(self._command.words, kill=(signal, at_s), anew=anew)
        wrong = [f"left running: {line[:100]}" for line in found["left"]]
        if found["took_s"] is not None and found["took_s"] > MOST_S:
            wrong.append(f"takes {found['took_s']:.1f} s to end")
        # Before and after the command itself, a signal ends the Python interpreter as usual.
        ended = (0, SIGNALS[signal], *([-int(Signals[signal.split()[0]])] if anew else []))
        if found["code"] not in ended:
            wrong.append(f"exit code {found['code']}: {found['err'][-200:]!r}")
        elif found["code"] > 0 and not (
            len(found["err"].splitlines()) == 1 or (not found["err"] and "resume" in found["out"])
        ):
            wrong.append(f"says {found['err'][-300:]!r}")
        if found["shared"]:
            wrong.append(f"in shared memory: {sorted(found['shared'])[:3]}")
        if found["code"] != 0:
            wrong += self._run_again()
        return [f"{signal}: {text}" for text in wrong + self._strays()]

    def fill(self, disk: Path, room: int) -> tuple[bool, list[str]]:
        """Runs the command on a disk with `room` bytes of space.

        Returns:
            Whether the command failed, and the problems found.
        """
        self._prepare()
        ballast = disk / "ballast"
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(shutil.disk_usage(disk).free - room, 1))
        found = self._ask(self._command.words)
        ballast.unlink()
        wrong = [f"left running: {line[:100]}" for line in found["left"]]
        if "Traceback" in found["err"] or len(found["err"].splitlines()) > 1:
            wrong.append(f"says {found['err'][-400:]!r}")
        if found["code"] == 0:
            if found["err"]:
                wrong.append(f"done, and says {found['err'][-300:]!r}")
            if self._result() != self._expected:
                wrong.append(f"done, and differs: {self._differs()}")
        elif found["code"] not in (1, 2) or not found["err"].startswith("tpsrl: error: "):
            wrong.append(f"exit code {found['code']}: {found['err'][-300:]!r}")
        if found["code"] != 0:
            wrong += self._run_again()
        return found["code"] != 0, wrong + self._strays()

    def _ask(self, words: Sequence[str], **more: Any) -> dict[str, Any]:
        return self._server.ask(words, self._folder / "here", LIMIT_S, **more)

    def _run_again(self) -> list[str]:
        again = self._ask(self._command.then())
        if again["code"] != 0:
            return [f"run again, exit code {again['code']}: {again['err'][:300]!r}"]
        if self._result() != self._expected:
            return [f"run again, differs: {self._differs()}"]
        return []

    def _strays(self) -> list[str]:
        here = self._folder / "here"
        strays = [p for p in here.rglob("*") if fuzzing.UNFINISHED.search(str(p.relative_to(here)))]
        strays += [p for p in self._folder.iterdir() if p.name not in _KEPT]
        return [f"files left: {[p.name for p in strays[:3]]}"] if strays else []

    def _prepare(self) -> None:
        for path in self._folder.iterdir():
            if path.name in _KEPT[1:]:
                continue
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        (self._folder / "here").mkdir()
        fuzzing.write(self._files, self._folder / "here")

    def _result(self) -> dict[str, Any]:
        here = self._folder / "here"
        paths = [p for p in sorted(here.rglob("*")) if p.is_file()]
        found = {str(p.relative_to(here)): p for p in paths if not {*p.parts} & _SKIPPED}
        if not self._command.exact:
            return dict.fromkeys(found) | {"steps": _steps(here / "out/metrics.jsonl")}
        return {name: _content(path) for name, path in found.items()}

    def _differs(self) -> str:
        now, then = self._result(), self._expected
        return ", ".join(name for name in sorted({*now, *then}) if now.get(name) != then.get(name))


def _steps(path: Path) -> int | None:
    """Returns the last number of steps in a training's metrics."""
    if not path.is_file():
        return None
    return int(json.loads(path.read_text().splitlines()[-1])["steps"])


def _content(path: Path) -> Any:
    """Returns the content of a file, without times."""
    if path.suffix == ".safetensors":
        from safetensors.numpy import load_file

        found = load_file(path).items()
        return {name: array.tobytes() for name, array in found if not name.endswith("ready_at")}
    if path.suffix == ".npz":
        with np.load(path) as file:
            return {name: file[name].tobytes() for name in file.files}
    if path.suffix in (".json", ".jsonl"):
        return [_timeless(json.loads(line)) for line in _documents(path)]
    if path.suffix == ".md":
        return None  # contains times and a date
    return path.read_bytes()


def _documents(path: Path) -> list[str]:
    text = path.read_text()
    return text.splitlines() if path.suffix == ".jsonl" else [text]


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if not k.endswith(_TIMES)}
    return [_timeless(v) for v in value] if isinstance(value, list) else value


def main(*arguments: str) -> int:
    """Runs and kills the commands."""
    chosen = DEFAULTS | dict(a.split("=", 1) for a in arguments)
    names = chosen["only"].split(",") if chosen["only"] else list(COMMANDS)
    signals = chosen["signals"].split(",") if chosen["signals"] else list(SIGNALS)
    materials = fuzzing.make_materials(Path(chosen["out"]) / "materials")
    failures: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        server = fuzzing.Server(Path(folder))
        for name in names:
            draw, begun = random.Random(f"{name} {chosen['seed']}"), time.monotonic()
            tried, bad = Tried(COMMANDS[name], server, materials, Path(folder)), 0
            for number in range(int(chosen["kills"])):
                signal = signals[number % len(signals)]
                anew = number % int(chosen["anew"]) == 0
                # In a new process, imports take time before the command's work.
                at_s = draw.uniform(0.1, 0.1 + 1.05 * tried.seconds + (3.0 if anew else 0.0))
                wrong = tried.kill(signal, at_s, anew)
                bad += bool(wrong)
                for text in wrong:
                    failures[f"{name} {text}"] += 1
                    if failures[f"{name} {text}"] == 1:
                        print(f"    {name}, {at_s:.2f} s{' anew' * anew}: {text}", flush=True)
            took = time.monotonic() - begun
            print(f"{name:18s} {tried.seconds:5.1f} s undisturbed, {chosen['kills']} kills in "
                  f"{took:.0f} s, {bad} not well", flush=True)  # fmt: skip
        server.close()
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
