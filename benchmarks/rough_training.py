"""Long training with disturbances: completeness of its steps and growth of its memory.

    python -m benchmarks.rough_training [minutes=120] [kill_s=30] [out=out/rough]

Runs `tpsrl train navigate` from the state with the collector `ver` and four workers. Every `kill_s`
seconds a worker is killed. After a quarter of the time the disk is full for a minute, which stops
the training; after half and after three quarters of the time the training itself is killed. Each
time it is resumed by `resume=auto`. Prints a row every twentieth of the time: seconds, resident
memory and descriptors of the training and of its workers, pages in shared memory; at the end prints
the training's messages. The exit code is 1 if the steps of the checkpoint and the metrics differ,
an update is missing or duplicated, a stop was not reported in one line, or a quantity has grown by
more than 10% plus 10 (MiB or descriptors) since the last start.

The disk is a file system in memory, so the benchmark must be run as root (Linux).
"""

import collections
import contextlib
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.faults import mount_disk
from benchmarks.soak import status

DEFAULTS = {"minutes": "120", "kill_s": "30", "out": "out/rough"}
ROWS, SLACK, SLACK_MIB = 20, 1.1, 10.0
FULL_S = 60.0
_WORKER = re.compile(r"forkserver")
TRAIN = (
    "train", "navigate", "resume=auto", "preset=cpu_state", "preset.collector=ver",
    "preset.num_envs=8", "preset.num_steps=32", "preset.steps=1000000000",
    "preset.max_failures=1000000", "processes=4", "threads=1", "device=cpu", "num_objects=1",
    "num_episodes=20", "validation_episodes=0", "checkpoint_minutes=0.5", "seed=1",
)  # fmt: skip


def children(pid: int) -> list[int]:
    """Returns all descendants of a process."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            found += [int(entry.name), *children(int(entry.name))]
    return found


def workers(pid: int) -> list[int]:
    """Returns the processes forked by a fork server: its children."""
    found = []
    for child in children(pid):
        try:
            if _WORKER.search((Path("/proc") / str(child) / "cmdline").read_text()):
                found += children(child)
        except OSError:
            continue
    return sorted(set(found))


def main(*arguments: str) -> int:
    """Trains, disturbs and observes."""
    chosen = DEFAULTS | dict(a.split("=", 1) for a in arguments)
    whole_s, kill_s = 60.0 * float(chosen["minutes"]), float(chosen["kill_s"])
    out = Path(chosen["out"])
    out.mkdir(parents=True, exist_ok=True)
    disk = Path(tempfile.mkdtemp(dir="/tmp"))
    mount_disk(disk)
    draw, begun = random.Random(0), time.monotonic()
    log = (out / "said.txt").open("w")
    command = [sys.executable, "-m", "tpsrl", *TRAIN, f"out={disk / 'training'}"]
    planned = collections.deque(
        [(0.25 * whole_s, "full"), (0.5 * whole_s, "kill"), (0.75 * whole_s, "kill")]
    )
    rows: list[list[float]] = []
    problems: list[str] = []
    killed = stops = 0

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.PIPE, text=True)

    training, next_kill, row_times = start(), kill_s, itertools.count(1)
    next_row = next(row_times) * whole_s / ROWS
    while (now := time.monotonic() - begun) < whole_s:
        time.sleep(0.5)
        if training.poll() is not None:
            assert training.stderr is not None
            output = training.stderr.read()
            stops += 1
            print(f"{now:7.0f} s  ended with {training.returncode}: {output.strip()[:200]}")
            if training.returncode != -signal.SIGKILL and len(output.splitlines()) != 1:
                problems.append(f"said {len(output.splitlines())} lines at its end")
            (disk / "ballast").unlink(missing_ok=True)
            training, rows = start(), []
            next_kill = now + kill_s
        elif planned and now > planned[0][0]:
            if planned[0][1] == "kill":
                training.kill()
                planned.popleft()
            elif not (disk / "ballast").exists():
                free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
                with (disk / "ballast").open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, free)
            elif now > planned[0][0] + FULL_S:
                (disk / "ballast").unlink()
                planned.popleft()
        elif now > next_kill and (living := workers(training.pid)):
            os.kill(draw.choice(living), signal.SIGKILL)
            killed, next_kill = killed + 1, now + kill_s
        if now > next_row and (living := workers(training.pid)):
            with contextlib.suppress(OSError, KeyError):  # a process has just ended
                rows.append(look(training.pid, living))
                next_row = next(row_times) * whole_s / ROWS
                print(f"{now:7.0f} s ", *(f"{value:9.1f}" for value in rows[-1]), flush=True)
        if planned and planned[0][1] == "full" and stops:
            planned.popleft()
    training.send_signal(signal.SIGTERM)
    training.wait()
    problems += [*_missing(disk / "training"), *_grown(rows)]
    print(f"{killed} workers were killed, the training ended {stops} times before its time")
    counts = collections.Counter(
        re.sub(r"\d[\d,.]*", "#", line) for line in (out / "said.txt").read_text().splitlines()
    )
    for line, times in counts.most_common(12):
        print(f"{times:7d}  {line[:120]}")
    for problem in problems:
        print(f"wrong: {problem}")
    subprocess.run(["umount", "-l", str(disk)], check=False)
    disk.rmdir()
    return int(bool(problems))


def look(pid: int, below: list[int]) -> list[float]:
    """Returns memory (MiB) and descriptors of a training and its workers, and its shared memory."""
    own = [status(p, "VmRSS") - status(p, "RssShmem") for p in (pid, *below)]
    files = [len(os.listdir(f"/proc/{p}/fd")) for p in (pid, *below)]
    return [own[0], sum(own[1:]), files[0], sum(files[1:]), status(pid, "RssShmem")]


def _missing(folder: Path) -> list[str]:
    """Checks that the metrics have each update once and the checkpoint's number of steps."""
    from tpsrl.rl.run.trainer import load_latest

    lines = (folder / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    steps = load_latest(folder).get("steps", int)
    wrong = []
    if [row["update"] for row in rows] != list(range(1, len(rows) + 1)):
        wrong.append("updates are missing or there twice")
    if rows[-1]["steps"] != steps:
        wrong.append(f"the checkpoint has {steps:,} steps, the metrics {rows[-1]['steps']:,}")
    size = 8 * 32
    if steps != size * len(rows):
        wrong.append(f"{len(rows):,} updates of {size} steps are not {steps:,} steps")
    return wrong


def _grown(rows: list[list[float]]) -> list[str]:
    names = ("memory", "memory of workers", "descriptors", "descriptors of workers", "shared")
    if len(rows) < 3:
        return ["too few rows since the last start to say whether anything grew"]
    return [
        f"{name} grew from {before:.1f} to {after:.1f}"
        for name, before, after in zip(names, rows[1], rows[-1], strict=True)
        if after > SLACK * before + SLACK_MIB
    ]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
