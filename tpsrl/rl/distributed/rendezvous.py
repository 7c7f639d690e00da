"""Rendezvous of a job's ranks: a shared store, and a prefix in it that belongs to this start alone.

torchrun keeps one store for everything that it starts, including restarted ranks (PyTorch 2.13,
where their keys no longer have a prefix). A rank that reads first after a restart finds the
addresses of dead ranks, and its connection is refused. So ranks first agree on a prefix. Rank 0
generates one, and each other rank posts a random word of its own under it. Once all words are
there, rank 0 publishes a list of them. If a rank's own word is in the list, all ranks belong to the
same start.
"""

import contextlib
import datetime
import importlib
import json
import os
import queue
import threading
import time
import uuid
from collections.abc import Callable, Mapping

from torch import distributed

from tpsrl.errors import RunError

_LOOK_S = 0.01
_HEAR_S = 0.1


def begin(
    backend: str, rank: int, size: int, address: tuple[str, int], wait: datetime.timedelta
) -> None:
    """Initialises torch.distributed's default process group.

    Args:
        backend: "gloo" or "nccl"
        rank: number of this rank
        size: number of ranks
        address: host and port of the store, which rank 0 opens if torchrun has not
        wait: timeout for the slowest rank, here and later

    Raises:
        RunError: a rank did not come in time.
        RuntimeError: raised by torch.distributed if the other ranks cannot be reached.
    """
    # Functions of this module have the default group at import time as a default argument. If the
    # module is imported later (any optimiser does so), they keep the group alive after it is
    # destroyed, and a gloo thread that ends with the interpreter aborts the process.
    importlib.import_module("torch.distributed.nn.functional")
    host, port = address
    opens = rank == 0 and not _is_of_torchrun(os.environ)
    store = _hearing_signals(
        lambda: distributed.TCPStore(
            host,
            port,
            size,
            is_master=opens,
            timeout=wait,
            wait_for_workers=False,
            multi_tenant=True,
        )
    )
    own = distributed.PrefixStore(agree(store, rank, size, wait.total_seconds()), store)
    distributed.init_process_group(backend, store=own, rank=rank, world_size=size, timeout=wait)


def _hearing_signals(make: Callable[[], distributed.Store]) -> distributed.Store:
    """Makes a store in a thread: compiled code on the main thread would delay SIGTERM and Ctrl-C.

    Raises:
        Exception: raised by `make`.
    """
    done: queue.SimpleQueue[tuple[distributed.Store | None, Exception | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((make(), None))
        except Exception as error:
            done.put((None, error))

    # A daemon thread does not delay the end of the process.
    threading.Thread(target=run, daemon=True).start()
    while True:
        with contextlib.suppress(queue.Empty):
            made, error = done.get(timeout=_HEAR_S)
            break
    if error is not None:
        raise error
    assert made is not None
    return made


def agree(store: distributed.Store, rank: int, size: int, wait_s: float) -> str:
    """Returns a prefix shared by the ranks of this start, distinct from other starts in the store.

    Raises:
        RunError: a rank did not come in time; names it.
    """
    word, end = uuid.uuid4().hex, time.monotonic() + wait_s
    if rank == 0:
        store.set("meeting", word)
        greeted = {str(n): f"{word}/{n}" for n in range(1, size)}
        while not all(store.check([key]) for key in greeted.values()):
            if time.monotonic() > end:
                late = [n for n, key in greeted.items() if not store.check([key])]
                raise RunError(f"ranks: {', '.join(late)} did not connect within {wait_s:g} s")
            time.sleep(_LOOK_S)
        heard = {n: store.get(key).decode() for n, key in greeted.items()}
        store.set(f"{word}/heard", json.dumps(heard))
        return word
    meeting = ""
    while time.monotonic() < end:
        if store.check(["meeting"]):
            now = store.get("meeting").decode()
            if now != meeting:
                meeting = now
                store.set(f"{meeting}/{rank}", word)
            if store.check([f"{meeting}/heard"]):
                heard = json.loads(store.get(f"{meeting}/heard"))
                if heard.get(str(rank)) == word:
                    return meeting
        time.sleep(_LOOK_S)
    raise RunError(f"ranks: rank 0 did not connect within {wait_s:g} s")


def _is_of_torchrun(env: Mapping[str, str]) -> bool:
    """Returns whether torchrun has opened the store."""
    return env.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
