"""Runs `tpsrl` commands, each in a fork of this process, so that nothing is imported twice.

Reads a JSON line for each, `{"arguments": [...], "folder": ..., "limit_s": ...}`, runs it in that
folder, and answers with a line: its exit code, what it printed, the seconds that it took, and how
it ended (`ended`, `terminated` after the limit, or `hung`).

    fuzz_server.py FOLDER

Where the system lets it, nothing but that folder and the project's can be written: a fuzzed path
may lead anywhere.
"""

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import tpsrl.cli
from eval.running.warmup import warm_up

_MEMORY = 12 * 2**30  # bytes of addresses that a command may take
_GRACE_S = 30.0  # that it has to end when it is told to
_IMPORTED = (
    "eval.running.evaluator",
    "eval.running.skill_evaluator",
    "eval.running.several",
    "eval.running.reports",
    "planner.search",
    "skills.demos.recording",
    "skills.gym",
    "tpsrl.rl.bench.measure",
    "tpsrl.rl.imitation.cloner",
    "tpsrl.rl.policy.encoder_registry",
    "tpsrl.rl.run.trainer",
    "tpsrl.sim.importing",
)


def run(arguments: list[str], folder: str, limit_s: float) -> dict[str, Any]:
    """What came of a command."""
    streams = [Path(folder).with_suffix(f".{name}") for name in ("out", "err")]
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
        _become(arguments, folder, streams)
    how, status = _wait(child, begun, limit_s)
    took = time.monotonic() - begun
    left = _left(child)
    texts = [path.read_text(errors="replace") for path in streams]
    for path in streams:
        path.unlink()
    return {
        "code": os.waitstatus_to_exitcode(status),
        "out": texts[0],
        "err": texts[1],
        "seconds": took,
        "how": how,
        "left": left,
    }


def _become(arguments: list[str], folder: str, streams: list[Path]) -> None:
    """Is the command, and ends."""
    code = 99
    try:
        os.setsid()
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        for number, path in zip((1, 2), streams, strict=True):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.argv = ["tpsrl", *arguments]
        code = tpsrl.cli.main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 98
    except BaseException:
        sys.excepthook(*sys.exc_info())  # as an interpreter would at its end
        code = 97
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(child: int, begun: float, limit_s: float) -> tuple[str, int]:
    """How it ended, and its status."""
    how, until = "ended", begun + limit_s
    pause = 0.002
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return how, status
        if time.monotonic() > until:
            if how == "ended":
                how, until = "terminated", time.monotonic() + _GRACE_S
                os.kill(child, signal.SIGTERM)
            else:
                os.killpg(child, signal.SIGKILL)
                return "hung", os.waitpid(child, 0)[1]
        time.sleep(pause)
        pause = min(pause * 1.3, 0.1)


def _left(child: int) -> list[str]:
    """Processes of its session that are still there a little later; they are killed."""
    for _ in range(50):
        found = subprocess.run(
            ["ps", "-o", "pid=,args=", "--sid", str(child)], capture_output=True, text=True
        ).stdout.splitlines()
        if not found:
            return []
        time.sleep(0.1)
    for line in found:
        os.kill(int(line.split()[0]), signal.SIGKILL)
    return found


def _confine(writable: list[str]) -> bool:
    """Mounts all else read-only, for this process and its children; whether that was possible."""
    libc = ctypes.CDLL(None, use_errno=True)
    new_namespace, private, remount, readonly, bind = 0x20000, 0x44000, 0x20, 0x1, 0x1000
    if os.geteuid() != 0 or libc.unshare(new_namespace) != 0:
        return False  # who is not root can do less harm

    def mount(what: str, flags: int) -> int:
        return int(libc.mount(what.encode(), what.encode(), None, ctypes.c_ulong(flags), None))

    if mount("/", private) != 0:
        return False
    for folder in writable:
        mount(folder, bind)
    return all(mount(folder, remount | bind | readonly) == 0 for folder in ("/", "/dev"))


def main(folder: str) -> None:
    """Serves until its input ends."""
    tpsrl.cli.let_threads_sleep()
    for name in _IMPORTED:
        __import__(name)
    warm_up()  # what is compiled here is there in every fork
    _confine([folder, str(Path(__file__).parents[1])])
    os.environ |= {"HOME": folder, "TMPDIR": folder}
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(run(asked["arguments"], asked["folder"], asked["limit_s"])), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
