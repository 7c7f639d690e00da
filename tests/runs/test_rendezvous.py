"""Ranks that agree on a prefix of the store which earlier ranks have not used."""

import concurrent.futures
import os
import re
import socket
import subprocess
import sys
import time

import pytest
import ranks
from torch import distributed

from tpsrl.errors import RunError
from tpsrl.rl.distributed import rendezvous

LIMIT_S = 30.0


@pytest.mark.parametrize("first", [0, 1, 2])
def test_restarted_ranks_agree_on_a_new_prefix(first: int) -> None:
    store, found = distributed.HashStore(), []
    for _ in range(3):  # entries of earlier runs remain in the store
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            order = [first, *(n for n in range(3) if n != first)]
            came = []
            for rank in order:
                came.append(pool.submit(rendezvous.agree, store, rank, 3, LIMIT_S))
                time.sleep(0.02)
            (prefix,) = {c.result() for c in came}
        found.append(prefix)
    assert len(set(found)) == 3


def test_a_rank_of_an_earlier_start_is_not_taken_for_its_successor() -> None:
    store = distributed.HashStore()
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        stale = pool.submit(rendezvous.agree, store, 0, 2, 0.2)  # rank 1 of this start never comes
        with pytest.raises(RunError, match=re.escape("ranks: 1 did not connect within 0.2 s")):
            stale.result()
        # Meets entries of the rank that has gone first.
        late = pool.submit(rendezvous.agree, store, 1, 2, LIMIT_S)
        time.sleep(0.1)
        assert late.running()
        assert rendezvous.agree(store, 0, 2, LIMIT_S) == late.result()


def test_without_rank_0_the_rendezvous_fails() -> None:
    with pytest.raises(RunError, match=re.escape("ranks: rank 0 did not connect within 0.1 s")):
        rendezvous.agree(distributed.HashStore(), 1, 2, 0.1)


def test_a_waiting_rank_reports_that_it_waits_and_ends_on_sigterm() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    job = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    process = ranks.Forked(
        [sys.executable, "-m", "tpsrl", "train", "navigate", "preset=cpu_state", "device=cpu"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | job,
    )
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    assert f"rank 1: waiting for all 2 ranks at 127.0.0.1:{port}\n" in lines
    process.terminate()
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (143, "tpsrl: terminated\n")
