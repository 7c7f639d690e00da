"""Commands on a disk that fills up: error messages, leftover files, and resumption.

    python -m benchmarks.faults [faults=20] [seed=0] [only=train_sync,...] [out=out/faults]

Each command of `benchmarks/kills.py` first runs undisturbed, then `faults` times on a separate disk
with space for 0 to 110% of its output. It must either end with exit code 1 or 2 and one line of
text, or complete with all of its output. With enough space again, it must resume or start over, and
its output must equal that of the undisturbed run. No temporary file and no process may remain.

The disk is a file system in memory, so the benchmark must be run as root (Linux).
"""

import collections
import ctypes
import os
import random
import sys
import tempfile
from pathlib import Path

from benchmarks.kills import COMMANDS, Tried

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import fuzzing

DEFAULTS = {"faults": "20", "seed": "0", "only": "", "out": "out/faults"}
_SIZE = 128 * 2**20  # bytes


def mount_disk(folder: Path) -> None:
    """Mounts a file system of `_SIZE` bytes, visible to this process and its children alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    new_namespace, recursively_private = 0x20000, 0x44000
    slash, size = b"/", f"size={_SIZE}".encode()
    if (
        libc.unshare(new_namespace) != 0
        or libc.mount(slash, slash, None, ctypes.c_ulong(recursively_private), None) != 0
        or libc.mount(b"none", bytes(folder), b"tmpfs", ctypes.c_ulong(0), size) != 0
    ):
        raise OSError(ctypes.get_errno(), "this has to be run as root")


def main(*arguments: str) -> int:
    """Runs the commands on full disks."""
    chosen = DEFAULTS | dict(a.split("=", 1) for a in arguments)
    names = chosen["only"].split(",") if chosen["only"] else list(COMMANDS)
    materials = fuzzing.make_materials(Path(chosen["out"]) / "materials")
    failures: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        disk = Path(name)
        mount_disk(disk)
        server = fuzzing.Server(disk / "on_it")
        for name in names:
            draw = random.Random(f"{name} {chosen['seed']}")
            tried = Tried(COMMANDS[name], server, materials, disk / "on_it")
            failed = bad = 0
            for _ in range(int(chosen["faults"])):
                room = round(tried.written * draw.uniform(0, 1.1))
                ended, wrong = tried.fill(disk, room)
                failed, bad = failed + ended, bad + bool(wrong)
                for text in wrong:
                    failures[f"{name} {text}"] += 1
                    if failures[f"{name} {text}"] == 1:
                        print(f"    {name}, {room:,} bytes: {text}", flush=True)
            print(f"{name:18s} {tried.written:9,d} bytes undisturbed, {chosen['faults']} disks, "
                  f"{failed} failed, {bad} not well", flush=True)  # fmt: skip
        server.close()
        os.chdir("/")
        ctypes.CDLL(None).umount2(bytes(disk), 2)  # MNT_DETACH
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
