import multiprocessing
import os
import time
from pathlib import Path

import numpy as np
import pytest

from tpsrl.errors import RunError
from tpsrl.rl.envs.messages import MessagePipe
from tpsrl.rl.envs.shared import SharedArrays, Signals

LAYOUT = {"signals": Signals.layout(2), "a": ((3, 5), np.float32), "flag": ((2,), bool)}


def doubler(pipe: MessagePipe) -> None:
    shared = SharedArrays.receive(pipe)
    signals = Signals(shared["signals"])
    while signals.receive(0, 30.0) and not shared["flag"][0]:
        shared["a"][:] *= 2.0
        signals.send(1)


def test_arrays_begin_at_zero_and_do_not_overlap() -> None:
    shared = SharedArrays({"a": ((3, 5), np.float32), "b": ((), np.int64), "c": ((2, 0), bool)})
    assert (shared["a"] == 0.0).all() and shared["b"] == 0 and shared["c"].shape == (2, 0)
    shared["a"][:] = 7.0
    assert shared["b"] == 0
    shared["b"][()] = -1
    assert (shared["a"] == 7.0).all()
    shared.close()
    shared.close()


def test_two_processes_share_memory_and_wake_each_other() -> None:
    shared = SharedArrays(LAYOUT)
    signals = Signals(shared["signals"])
    signals.begin()
    context = multiprocessing.get_context("spawn")
    ours, theirs = MessagePipe.pair()
    process = context.Process(target=doubler, args=(theirs,))
    process.start()
    shared.send(ours)
    shared["a"][:] = np.arange(15).reshape(3, 5)
    for turn in range(1, 4):
        signals.send(0)
        assert signals.receive(1, 30.0)
        np.testing.assert_array_equal(shared["a"].ravel(), 2.0**turn * np.arange(15))
    shared["flag"][0] = True
    signals.send(0)
    process.join(30)
    assert process.exitcode == 0


def test_a_channel_counts_its_signals_only() -> None:
    signals = Signals(SharedArrays(LAYOUT)["signals"])
    signals.begin()
    for _ in range(3):
        signals.send(0)
    assert [signals.receive(0, 0.0) for _ in range(4)] == [True, True, True, False]
    assert not signals.receive(1, 0.01)


def test_receiving_sleeps_until_the_timeout() -> None:
    signals = Signals(SharedArrays(LAYOUT)["signals"])
    signals.begin()
    wall, core = time.monotonic(), time.thread_time()
    assert not signals.receive(0, 0.3)
    assert time.monotonic() - wall >= 0.29
    assert time.thread_time() - core < 0.1  # asleep, not in a busy loop


def shared_files() -> set[str]:
    """Returns the files of shared memory that this process maps, without deleted ones."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[-1] for line in lines if "/dev/shm/" in line and "deleted" not in line}


def test_shared_memory_is_anonymous_and_its_descriptor_is_closed() -> None:
    before = len(os.listdir("/proc/self/fd"))
    named = shared_files()
    shared = SharedArrays({"a": ((1000, 1000), np.float64)})
    assert shared_files() == named
    assert len(os.listdir("/proc/self/fd")) > before
    shared.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_more_shared_memory_than_available_is_refused() -> None:
    with pytest.raises(RunError, match=r"shared memory: 8,388,608\.0 GiB are needed"):
        SharedArrays({"a": ((2**50,), np.float64)})
