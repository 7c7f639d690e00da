"""Where the ranks of a job meet: a store that they share, and a part of it that is theirs alone.

torchrun keeps one store for all that it starts, ranks that it starts anew included (PyTorch 2.13,
where their keys have no prefix any more). Who is first to look after a restart finds the addresses
of those that have died, and is refused. So ranks agree upon a prefix first. Rank 0 makes one up,
the others greet it with a word of their own, and when all have, it writes down whom it has heard:
who finds its own word there knows that all are of its time.
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
    """Makes torch.distributed's default process group.

    Args:
        backend: "gloo" or "nccl"
        rank: this one's number
        size: how many there are
        address: host and port of the store, which rank 0 opens if torchrun has not
        wait: for the slowest, here and later

    Raises:
        RunError: the others did not come in time.
        RuntimeError: torch.distributed's, the others are not to be reached.
    """
    # Its functions have the default group of the time of the import as an argument's default. Made
    # later (any optimiser imports it), they keep the group alive when it is left, and a thread of
    # gloo's that ends while the interpreter does aborts the process.
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
    """The store that a call makes in compiled code, where SIGTERM and Ctrl-C would wait with it.

    Raises:
        Exception: one of the call's.
    """
    done: queue.SimpleQueue[tuple[distributed.Store | None, Exception | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((make(), None))
        except Exception as error:
            done.put((None, error))

    # A daemon: who is told to end does not wait for it.
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
    """A prefix that all ranks of this start have, and none of another that used the same store.

    Raises:
        RunError: one did not come in time; says which.
    """
    word, end = uuid.uuid4().hex, time.monotonic() + wait_s
    if rank == 0:
        store.set("meeting", word)
        greeted = {str(n): f"{word}/{n}" for n in range(1, size)}
        while not all(store.check([key]) for key in greeted.values()):
            if time.monotonic() > end:
                late = [n for n, key in greeted.items() if not store.check([key])]
                raise RunError(f"ranks: {', '.join(late)} did not come within {wait_s:g} s")
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
    raise RunError(f"ranks: rank 0 did not come within {wait_s:g} s")


def _is_of_torchrun(env: Mapping[str, str]) -> bool:
    """Whether torchrun has opened the store."""
    return env.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
