"""Server that runs `tpsrl` commands in forks of this process, so that imports happen only once.

    command_server.py FOLDER JOB ...

The jobs are those of `eval.running.warmup` to run first: every fork has what they compile and
import. If the system allows it, only FOLDER and the project's folder are writable, because fuzzed
paths may point anywhere, and shared memory is private to the server.

Each input line is a JSON object, `{"arguments": [...], "folder": ..., "limit_s": ...}`, whose
command runs in that folder. With `"kill": [signal, seconds]` the command receives that signal at
that time; "SIGTERM to all" sends it to all processes of the command. With `"anew": true` the
command is a new process instead of a fork.

The answer is a JSON line: the exit code ("code"), the output ("out" and "err"), the duration
("seconds"), the kind of end ("how": `ended`, `terminated` after the limit, or `hung`), remaining
processes ("left") and remaining files in shared memory ("shared"). After a "kill", "took_s" is the
time until the end.
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

_MEMORY = 12 * 2**30  # address space (bytes) of a command
_GRACE_S = 30.0  # time to end after SIGTERM
_LINGER_S = 5.0  # time by which its processes may outlive a command
_MARK = "TPSRL_COMMAND"  # environment variable of all processes of a command
_SHARED = Path("/dev/shm")
_shared_of_all = _SHARED.stat().st_dev if _SHARED.exists() else None  # the machine's own
_IMPORTED = (
    "eval.running.evaluator",
    "eval.running.skill_evaluator",
    "eval.running.several",
    "eval.running.bank",
    "eval.running.reports",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "planner.search",
    "torch._dynamo",  # imported by optimizers
    "skills.demos.recording",
    "skills.gym",
    "tpsrl.rl.bench.measure",
    "tpsrl.rl.imitation.cloner",
    "tpsrl.rl.policy.encoder_registry",
    "tpsrl.rl.run.trainer",
    "tpsrl.sim.importing",
)


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Runs a command, and returns the answer."""
    folder = request["folder"]
    streams = [os.memfd_create(name) for name in ("out", "err")]  # in memory: the disk may be full
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
        _become(request["arguments"], folder, streams, request.get("anew", False))
    found = _wait(child, begun, request["limit_s"], request.get("kill"))
    found["seconds"] = time.monotonic() - begun
    found["left"] = _left(child)
    found["shared"] = _shared()
    for name, stream in zip(("out", "err"), streams, strict=True):
        os.lseek(stream, 0, os.SEEK_SET)
        with open(stream, errors="replace") as file:
            found[name] = file.read()
    return found


def _shared() -> list[str]:
    """Returns the files in shared memory, if that is private to this server, and removes them."""
    if _shared_of_all in (None, _SHARED.stat().st_dev):
        return []
    found = list(_SHARED.iterdir())
    for path in found:
        path.unlink()
    return [path.name for path in found]


def _become(arguments: list[str], folder: str, streams: list[int], anew: bool) -> None:
    """Turns this process into a command, and exits."""
    code = 99
    try:
        os.setsid()
        # A background job of a script would ignore SIGINT.
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
        sys.excepthook(*sys.exc_info())  # as at the end of an interpreter
        code = 97
    finally:
        multiprocessing.util._exit_function()  # as at the end of an interpreter
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(
    child: int, begun: float, limit_s: float, kill: tuple[str, float] | None
) -> dict[str, Any]:
    """Returns how a command ended, its exit code, and the time it took to end after a signal."""
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
            with contextlib.suppress(ProcessLookupError):  # the child has no session of its own yet
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
    """Returns the processes of a command that remain after a short wait, and kills them."""
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
    """Yields the processes of a command: those of its session, and those with its mark."""
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
    """Makes all other folders read-only for this process and its children.

    Returns:
        Whether that was possible.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    new_namespace, private, remount, readonly, bind = 0x20000, 0x44000, 0x20, 0x1, 0x1000
    if os.geteuid() != 0 or libc.unshare(new_namespace) != 0:
        return False  # without root the damage is limited

    def mount(what: str, flags: int) -> int:
        return int(libc.mount(what.encode(), what.encode(), None, ctypes.c_ulong(flags), None))

    if mount("/", private) != 0:
        return False
    for folder in writable:
        mount(folder, bind)
    libc.mount(b"none", bytes(_SHARED), b"tmpfs", ctypes.c_ulong(0), None)
    return all(mount(folder, remount | bind | readonly) == 0 for folder in ("/", "/dev"))


def main(folder: str, *jobs: str) -> None:
    """Serves until the end of the input."""
    surroundings.let_threads_sleep()
    for name in _IMPORTED:
        __import__(name)
    for job in jobs:
        JOBS[job]()
    _confine([folder, str(Path(__file__).parents[1])])
    os.environ |= {"HOME": folder, "TMPDIR": folder}
    tempfile.tempdir = None  # so that it is looked up again
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(run(request)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
