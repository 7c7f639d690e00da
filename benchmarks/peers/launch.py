"""Runs a peer in separate processes and ends all of them."""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.peers import install
from benchmarks.peers.peers import PEERS
from benchmarks.peers.settings import Settings, marks_path, rates
from tpsrl.errors import RunError

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_TAG = "TPSRL_PEER"  # in the environment of every process of a run
_SILENCE_S = 300.0  # maximum time without a rollout, at the start too
_GOODBYE_S = 30.0  # time for a peer to exit
_POLL_S = 0.5
# Processes that remove semaphores and shared memory after their creators have ended.
_CLEANERS = (b"multiprocessing.resource_tracker", b"torch_shm_manager")
_CLEANING_S = 10.0


def measure(name: str, settings: Settings, folder: Path) -> dict[str, Any]:
    """Times one peer; returns JSON types, of which "samples_per_s" is that of `settings.rates`.

    Virtual environments, logs and other files are written into `folder`.

    Raises:
        RunError: the peer cannot be installed, failed, or was stuck.
    """
    peer = PEERS[name]
    python = install.interpreter(peer.library, folder)
    place = folder / "runs" / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    settings = dataclasses.replace(settings, folder=str(place.resolve()))
    log = place / "log.txt"
    command = [str(python), "-m", peer.module, settings.to_text(), json.dumps(peer.extra)]
    with log.open("w") as output, _processes(command, output) as process:
        _wait(name, process, settings, log)
        load = os.getloadavg()[0]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GOODBYE_S)
    return {
        "peer": name,
        **rates(settings),
        "load": load,
        "versions": install.versions(peer.library, python),
        "options": peer.extra,
        "notes": list(peer.notes),
        "settings": dataclasses.asdict(settings),
    }


def _wait(name: str, process: subprocess.Popen[bytes], settings: Settings, log: Path) -> None:
    """Waits until the peer has learned from all rollouts."""
    needed, seen, since = settings.warm_up + settings.rollouts, 0, time.monotonic()
    path = marks_path(settings)
    while seen < needed:
        ended = process.poll()
        now = len(path.read_text().splitlines()) if path.exists() else 0
        if now > seen:
            seen, since = now, time.monotonic()
        elif ended is not None:
            raise RunError(f"{name}: ended with code {ended} after {seen} rollouts, see {log}")
        elif time.monotonic() - since > _SILENCE_S:
            raise RunError(f"{name}: no rollout for {_SILENCE_S:.0f} s after {seen}, see {log}")
        time.sleep(_POLL_S)


@contextlib.contextmanager
def _processes(command: list[str], output: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a process in the repository's root; ends it and its descendants with the context."""
    tag = uuid.uuid4().hex
    environment = os.environ | dict.fromkeys(_THREADS, "1") | {_TAG: tag}
    environment["PYTHONPATH"] = str(install.ROOT)
    process = subprocess.Popen(
        command,
        cwd=install.ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # so that a keyboard interrupt reaches only this process
    )
    try:
        yield process
    finally:
        entry, patience = f"{_TAG}={tag}".encode(), time.monotonic() + _CLEANING_S
        while _kill(entry, spare=time.monotonic() < patience):
            time.sleep(0.05)
        process.wait()


def _kill(tag: bytes, spare: bool) -> int:
    """Kills the processes with an entry in their environment; returns how many there were.

    With `spare`, the processes in `_CLEANERS` are spared, since they clean up and then exit.
    """
    count = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        # The process may have ended, or belong to another user.
        with contextlib.suppress(OSError):
            if tag not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            count += 1
            command = (entry / "cmdline").read_bytes()
            if not spare or not any(name in command for name in _CLEANERS):
                os.kill(int(entry.name), signal.SIGKILL)
    return count
