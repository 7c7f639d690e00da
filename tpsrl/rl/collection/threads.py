"""How many threads torch computes with while environments step in processes of their own."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Has torch compute with one thread in this block.

    Small copies gain nothing from a second thread, and it would have to wait for a core that a
    worker has.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def learner_threads(cores: int, collector: str) -> int:
    """Threads for a learner beside workers that have `cores` too.

    With `overlap` it computes while they step, so that it takes half of the cores.
    """
    return max(cores // 2, 1) if collector == "overlap" else cores
