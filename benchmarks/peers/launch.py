"""Runs a peer in processes of its own and sees to it that all of them end."""

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
_SILENCE_S = 300.0  # without a rollout, from the start on, after which a run counts as stuck
_GOODBYE_S = 30.0  # for a peer to end by itself
_POLL_S = 0.5
# Semaphores and shared memory are removed by processes that outlive those that made them.
_CLEANERS = (b"multiprocessing.resource_tracker", b"torch_shm_manager")
_CLEANING_S = 10.0


def measure(name: str, settings: Settings, folder: Path) -> dict[str, Any]:
    """Times one peer: JSON types, of which "samples_per_s" is that of `settings.rates`.

    Environments, logs and what else it leaves are in `folder`.

    Raises:
        RunError: it cannot be installed, failed, or was stuck.
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
    """A process in the root of the repository; it and all that came of it end with the context."""
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
        start_new_session=True,  # so that an interrupt from the keyboard is for us to pass on
    )
    try:
        yield process
    finally:
        entry, patience = f"{_TAG}={tag}".encode(), time.monotonic() + _CLEANING_S
        while _kill(entry, spare=time.monotonic() < patience):
            time.sleep(0.05)
        process.wait()


def _kill(tag: bytes, spare: bool) -> int:
    """Kills the processes that have an entry in their environment; how many were there.

    With `spare` those that clean up after others, which then end by themselves, are let live.
    """
    count = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        # It may be gone, or somebody else's.
        with contextlib.suppress(OSError):
            if tag not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            count += 1
            command = (entry / "cmdline").read_bytes()
            if not spare or not any(name in command for name in _CLEANERS):
                os.kill(int(entry.name), signal.SIGKILL)
    return count
