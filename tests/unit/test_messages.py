import os
import signal
import threading
import time

import numpy as np
import pytest

from tpsrl.rl.envs.messages import MessagePipe, Outbox


def test_messages_of_any_size_arrive_in_order() -> None:
    ours, theirs = MessagePipe.pair()
    sizes = [0, 1, 10, 3_000_000, 5, 700_000, 7]
    outbox = Outbox(theirs)
    for size in sizes:
        outbox.put(b"x" * size)
    assert [len(ours.recv()) for _ in sizes] == sizes
    assert not ours.poll()


def test_an_outbox_does_not_block_on_unread_messages() -> None:
    ours, theirs = MessagePipe.pair()
    done = threading.Event()

    def put() -> None:
        outbox = Outbox(theirs)
        for number in range(5_000):
            outbox.put(number)
        done.set()
        outbox.flush()

    threading.Thread(target=put, daemon=True).start()
    assert done.wait(30.0)
    assert [ours.recv() for _ in range(5_000)] == list(range(5_000))


def test_a_message_is_available_only_once_it_is_complete() -> None:
    ours, theirs = MessagePipe.pair()
    assert not ours.poll()
    large = np.arange(1_000_000)
    Outbox(theirs).put(large)
    while not ours.poll():
        time.sleep(0.001)
    np.testing.assert_array_equal(ours.recv(), large)


def test_sending_to_a_peer_that_does_not_read_times_out() -> None:
    ours, _theirs = MessagePipe.pair()
    with pytest.raises(TimeoutError):
        ours.send(b"x" * 5_000_000, 0.1)


def test_a_closed_peer_raises_errors_on_poll_receive_and_send() -> None:
    ours, theirs = MessagePipe.pair()
    theirs.close()
    with pytest.raises(EOFError):
        ours.poll()
    with pytest.raises(EOFError):
        ours.recv()
    with pytest.raises(OSError):
        ours.send(b"x" * 5_000_000)
    outbox = Outbox(ours)
    with pytest.raises(OSError):
        outbox.put(1)
    outbox.flush()


def test_messages_of_a_killed_process_can_still_be_received() -> None:
    ours, theirs = MessagePipe.pair()
    child = os.fork()
    if not child:
        Outbox(theirs).put("last words")
        os.kill(os.getpid(), signal.SIGKILL)
    theirs.close()
    os.waitpid(child, 0)
    assert ours.recv() == "last words"
    with pytest.raises(EOFError):
        ours.recv()


def test_an_open_file_can_be_sent_between_messages() -> None:
    ours, theirs = MessagePipe.pair()
    read, write = os.pipe()
    ours.send("first")
    ours.send_descriptor(write)
    ours.send("last")
    os.close(write)
    assert theirs.recv() == "first"
    with os.fdopen(theirs.recv_descriptor(), "wb") as file:
        file.write(b"came")
    assert theirs.recv() == "last"
    with os.fdopen(read, "rb") as file:
        assert file.read() == b"came"
