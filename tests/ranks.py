"""Runs a function in several processes that learn together."""

import contextlib
import multiprocessing
import os
import pickle
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tpsrl.rl.distributed import group as groups
from tpsrl.rl.distributed.group import Group

_LIMIT_S = 120.0
# Imported once, by the process that all ranks are forked from.
_IMPORTED = ["tpsrl.rl.distributed.group", "tpsrl.rl.run.trainer", "tpsrl.rl.run.assembly"]


def run(count: int, work: Callable[..., Any], folder: Path, *args: Any) -> list[Any]:
    """What `work(group, *args)` gives on each of so many ranks; it can be pickled."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    port = _free_port()
    processes = [
        context.Process(target=_rank, args=(rank, count, port, work, folder, args))
        for rank in range(count)
    ]
    for process in processes:
        process.start()
    try:
        for process in processes:
            process.join(_LIMIT_S)
        assert [process.exitcode for process in processes] == [0] * count
    finally:
        for process in processes:
            process.kill()
    return [pickle.loads((folder / f"rank{rank}").read_bytes()) for rank in range(count)]


def _rank(
    rank: int, count: int, port: int, work: Callable[..., Any], folder: Path, args: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    group: Group = groups.join(torch.device("cpu"))
    with contextlib.ExitStack() as stack:
        stack.callback(groups.leave)
        found = work(group, *args)
        (folder / f"rank{rank}").write_bytes(pickle.dumps(found))
    # One that lives on may abort the process while the interpreter ends.
    assert "pt_gloo_runloop" not in _threads()


def _threads() -> list[str]:
    return [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
