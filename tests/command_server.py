"""Runs `tpsrl` commands, each in a fork of this process, so that nothing is imported twice.

Reads a JSON line for each, `{"arguments": [...], "folder": ..., "limit_s": ...}`, runs it in that
folder, and answers with a line: its exit code, what it printed, the seconds that it took, how
it ended (`ended`, `terminated` after the limit, or `hung`), which of its processes were left, and
what in shared memory.
With `"kill": [signal, seconds]` it is sent that signal then ("SIGTERM to all": its processes too),
and the answer has `took_s`, the time that it took to end; with `"anew": true` it is a process of
its own from the start.

    command_server.py FOLDER JOB ...

The jobs are those of `eval.running.warmup` that it does first: what they compile and import is
there in every fork. Where the system lets it, nothing but that folder and the project's can be
written, for a fuzzed path may lead anywhere, and the shared memory is one of its own.
"""

import contextlib
import ctypes
import json
import multiprocessing.util
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tpsrl.cli
from eval.running.warmup import JOBS
from tpsrl.runtime import surroundings

_MEMORY = 12 * 2**30  # bytes of addresses that a command may take
_GRACE_S = 30.0  # that it has to end when it is told to
_LINGER_S = 5.0  # that its processes may outlive it
_MARK = "TPSRL_COMMAND"  # variable of what a command has started
_SHARED = Path("/dev/shm")
_shared_of_all = _SHARED.stat().st_dev if _SHARED.exists() else None  # of this machine
_IMPORTED = (
    "eval.running.evaluator",
    "eval.running.skill_evaluator",
    "eval.running.several",
    "eval.running.bank",
    "eval.running.reports",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "planner.search",
    "torch._dynamo",  # what makes an optimizer imports it
    "skills.demos.recording",
    "skills.gym",
    "tpsrl.rl.bench.measure",
    "tpsrl.rl.imitation.cloner",
    "tpsrl.rl.policy.encoder_registry",
    "tpsrl.rl.run.trainer",
    "tpsrl.sim.importing",
)


def run(asked: dict[str, Any]) -> dict[str, Any]:
    """What came of a command."""
    folder = asked["folder"]
    streams = [os.memfd_create(name) for name in ("out", "err")]  # on no disk that may be full
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
        _become(asked["arguments"], folder, streams, asked.get("anew", False))
    found = _wait(child, begun, asked["limit_s"], asked.get("kill"))
    found["seconds"] = time.monotonic() - begun
    found["left"] = _left(child)
    found["shared"] = _shared()
    for name, stream in zip(("out", "err"), streams, strict=True):
        os.lseek(stream, 0, os.SEEK_SET)
        with open(stream, errors="replace") as file:
            found[name] = file.read()
    return found


def _shared() -> list[str]:
    """What is in shared memory, if it is this server's own; it is removed."""
    if _shared_of_all in (None, _SHARED.stat().st_dev):
        return []
    found = list(_SHARED.iterdir())
    for path in found:
        path.unlink()
    return [path.name for path in found]


def _become(arguments: list[str], folder: str, streams: list[int], anew: bool) -> None:
    """Is the command, and ends."""
    code = 99
    try:
        os.setsid()
        # In the background of a script it would be ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        for number, stream in zip((1, 2), streams, strict=True):
            os.dup2(stream, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ[_MARK] = str(os.getpid())
        if anew:
            os.execv(sys.executable, [sys.executable, "-m", "tpsrl", *arguments])
        sys.argv = ["tpsrl", *arguments]
        code = tpsrl.cli.main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 98
    except BaseException:
        sys.excepthook(*sys.exc_info())  # as an interpreter would at its end
        code = 97
    finally:
        multiprocessing.util._exit_function()  # as an interpreter does
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(
    child: int, begun: float, limit_s: float, kill: tuple[str, float] | None
) -> dict[str, Any]:
    """How it ended, its exit code, and when it was killed how long that took."""
    how, until, killed = "ended", begun + limit_s, 0.0
    pause = 0.002
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        now = time.monotonic()
        if pid:
            took = now - killed if killed else None
            return {"how": how, "code": os.waitstatus_to_exitcode(status), "took_s": took}
        if kill is not None and not killed and now > begun + kill[1]:
            name, _, to_all = kill[0].partition(" ")
            with contextlib.suppress(ProcessLookupError):  # it has no session of its own yet
                (os.killpg if to_all else os.kill)(child, signal.Signals[name])
                killed, pause = now, 0.002
        elif now > until:
            if how == "ended":
                how, until = "terminated", now + _GRACE_S
                os.kill(child, signal.SIGTERM)
            else:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return {"how": "hung", "code": -9, "took_s": None}
        time.sleep(pause)
        pause = min(pause * 1.3, 0.1 if kill is None or killed else 0.01)


def _left(child: int) -> list[str]:
    """Processes of a command that are still there a little later; they are killed."""
    found: dict[int, str] = {}
    for _ in range(round(_LINGER_S / 0.1)):
        found = dict(_of(child))
        if not found:
            return []
        time.sleep(0.1)
    for process in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return list(found.values())


def _of(child: int) -> Iterator[tuple[int, str]]:
    """Those of its session, and those that have its mark in their environment."""
    mark = f"{_MARK}={child}\0".encode()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            process = int(entry.name)
            state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            if state == "Z":
                continue
            if int(session) == child or mark in (entry / "environ").read_bytes() + b"\0":
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                yield process, f"{process} {words.decode(errors='replace')}"


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
    libc.mount(b"none", bytes(_SHARED), b"tmpfs", ctypes.c_ulong(0), None)
    return all(mount(folder, remount | bind | readonly) == 0 for folder in ("/", "/dev"))


def main(folder: str, *jobs: str) -> None:
    """Serves until its input ends."""
    surroundings.let_threads_sleep()
    for name in _IMPORTED:
        __import__(name)
    for job in jobs:
        JOBS[job]()
    _confine([folder, str(Path(__file__).parents[1])])
    os.environ |= {"HOME": folder, "TMPDIR": folder}
    tempfile.tempdir = None  # looked up again
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(run(asked)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
