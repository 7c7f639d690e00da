"""Messages between the main process and a worker, over a socket.

A socket holds a few hundred kilobytes, or a few hundred messages; a sender of more blocks until the
other end reads. If both ends could block, they might wait for each other forever. A worker
therefore sends by an `Outbox`, which never blocks, so that it can always read messages of the main
process. The main process reads without blocking (`MessagePipe.poll`) and sends with a timeout.
"""

import collections
import pickle
import socket
import struct
import threading
from typing import Any

_HEADER = struct.Struct("!Q")  # before every message: its length in bytes
_CHUNK = 2**18  # bytes that are read at once


class MessagePipe:
    """One end of a socket that carries picklable objects in both directions.

    Any call raises OSError or EOFError when the process at the other end is gone.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._came = bytearray()  # received data of messages not returned yet

    @staticmethod
    def pair() -> tuple["MessagePipe", "MessagePipe"]:
        """Makes two connected ends, one of which may be sent to a process at its launch."""
        ours, theirs = socket.socketpair()
        return MessagePipe(ours), MessagePipe(theirs)

    def fileno(self) -> int:
        """Returns the socket's descriptor, for waiting on it."""
        return self._socket.fileno()

    def send(self, message: Any, timeout_s: float | None = None) -> None:
        """Sends a message; blocks while the socket is full, at most for `timeout_s`.

        Raises:
            TimeoutError: the message was not read in time; nothing can be sent after it.
        """
        self._socket.settimeout(timeout_s)
        self._socket.sendall(pack(message))

    def send_some(self, data: memoryview) -> int:
        """Sends part of a packed message without blocking; returns the number of bytes sent."""
        try:
            return self._socket.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def send_rest(self, data: memoryview) -> None:
        """Sends the rest of a packed message, blocking as long as necessary."""
        self._socket.sendall(data)

    def poll(self) -> bool:
        """Returns whether a whole message has arrived; reads available data without blocking."""
        self._socket.settimeout(0.0)
        while len(self._came) < self._wanted():
            try:
                chunk = self._socket.recv(_CHUNK)
            except BlockingIOError:
                return False
            self._take_in(chunk)
        return True

    def recv(self) -> Any:
        """Returns the next message, blocking until it has arrived; reads no data beyond its end."""
        while (missing := self._wanted() - len(self._came)) > 0:
            self._socket.settimeout(None)
            self._take_in(self._socket.recv(min(missing, _CHUNK)))
        end = self._wanted()
        with memoryview(self._came) as came, came[_HEADER.size : end] as data:
            message = pickle.loads(data)
        del self._came[:end]
        return message

    def send_descriptor(self, descriptor: int) -> None:
        """Sends an open file; the other end must call `recv_descriptor` next."""
        self._socket.settimeout(None)
        socket.send_fds(self._socket, [b"\0"], [descriptor])

    def recv_descriptor(self) -> int:
        """Returns a descriptor of the file that the other end sends next."""
        self._socket.settimeout(None)
        came, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
        if not came:
            raise EOFError
        return descriptors[0]

    def close(self) -> None:
        """Closes the socket; safe to call twice."""
        self._socket.close()

    def _wanted(self) -> int:
        """Returns the length of the header, with that of the message once the header arrived."""
        if len(self._came) < _HEADER.size:
            return _HEADER.size
        length: int = _HEADER.unpack_from(self._came)[0]
        return _HEADER.size + length

    def _take_in(self, chunk: bytes) -> None:
        if not chunk:
            raise EOFError
        self._came += chunk


class Outbox:
    """Sends messages in order without ever blocking.

    A thread sends what the socket cannot hold, as the other end reads.
    """

    def __init__(self, pipe: MessagePipe) -> None:
        self._pipe = pipe
        self._left: collections.deque[memoryview] = collections.deque()
        self._sending = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, message: Any) -> None:
        """Sends a message, or queues it for the thread.

        Raises:
            OSError: the other end is gone.
        """
        data = memoryview(pack(message))
        with self._sending:
            if self._thread is None:
                data = data[self._pipe.send_some(data) :]
            if not data:
                return
            self._left.append(data)
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_left, daemon=True)
                self._thread.start()

    def flush(self) -> None:
        """Blocks until everything is sent, or the other end is gone."""
        while (thread := self._thread) is not None:
            thread.join()

    def _send_left(self) -> None:
        while True:
            with self._sending:
                if not self._left:
                    self._thread = None
                    return
                data = self._left.popleft()
            try:
                self._pipe.send_rest(data)
            except OSError:  # The other end is gone, so the queue is void.
                self._left.clear()


def pack(message: Any) -> bytes:
    """Converts a message to the bytes sent over the socket."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _HEADER.pack(len(data)) + data
