"""Number of torch threads while environments step in worker processes."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Limits torch to one thread inside the block.

    Small copies gain nothing from a second thread, which would have to wait for a core that a
    worker uses.
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
    """Returns the number of threads for a learner that shares `cores` with workers.

    With `overlap` the learner computes while the workers step, so it takes half of the cores.
    """
    return max(cores // 2, 1) if collector == "overlap" else cores
