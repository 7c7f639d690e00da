"""Messages between the main process and a worker, over a socket.

A socket holds some hundred kilobytes, or as many hundred messages; whoever sends more waits until
the other end reads. If both ends could wait so, they might wait for each other. So a worker sends
by an `Outbox`, which never waits, and is therefore always there to read what the main process sends
to it; the main process reads without waiting (`MessagePipe.poll`) and sends within a time.
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
    """One end of a socket, over which picklable objects go both ways.

    Any call raises OSError or EOFError when the process at the other end is gone.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._came = bytearray()  # of messages that have not come to their end

    @staticmethod
    def pair() -> tuple["MessagePipe", "MessagePipe"]:
        """Two ends; one may be sent to another process that is being launched."""
        ours, theirs = socket.socketpair()
        return MessagePipe(ours), MessagePipe(theirs)

    def fileno(self) -> int:
        """The socket's own descriptor, to wait for."""
        return self._socket.fileno()

    def send(self, message: Any, timeout_s: float | None = None) -> None:
        """Sends a message, waiting for so long as the socket is full.

        Raises:
            TimeoutError: it was not read in this time; nothing can be sent after it.
        """
        self._socket.settimeout(timeout_s)
        self._socket.sendall(pack(message))

    def send_some(self, data: memoryview) -> int:
        """How many bytes of a packed message could be sent without waiting."""
        try:
            return self._socket.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def send_rest(self, data: memoryview) -> None:
        """Sends what is left of a packed message, waiting as long as it takes."""
        self._socket.sendall(data)

    def poll(self) -> bool:
        """Whether a whole message has come; takes in what has, without waiting."""
        self._socket.settimeout(0.0)
        while len(self._came) < self._wanted():
            try:
                chunk = self._socket.recv(_CHUNK)
            except BlockingIOError:
                return False
            self._take_in(chunk)
        return True

    def recv(self) -> Any:
        """The next message, waiting for it; takes nothing from the socket beyond its end."""
        while (missing := self._wanted() - len(self._came)) > 0:
            self._socket.settimeout(None)
            self._take_in(self._socket.recv(min(missing, _CHUNK)))
        end = self._wanted()
        with memoryview(self._came) as came, came[_HEADER.size : end] as data:
            message = pickle.loads(data)
        del self._came[:end]
        return message

    def send_descriptor(self, descriptor: int) -> None:
        """Sends an open file, of which the other end has to `recv_descriptor` next."""
        self._socket.settimeout(None)
        socket.send_fds(self._socket, [b"\0"], [descriptor])

    def recv_descriptor(self) -> int:
        """A descriptor of the file that the other end sends next."""
        self._socket.settimeout(None)
        came, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
        if not came:
            raise EOFError
        return descriptors[0]

    def close(self) -> None:
        """Gives the descriptor back; safe to call twice."""
        self._socket.close()

    def _wanted(self) -> int:
        """The length of the header, and once it has come of the message with it."""
        if len(self._came) < _HEADER.size:
            return _HEADER.size
        length: int = _HEADER.unpack_from(self._came)[0]
        return _HEADER.size + length

    def _take_in(self, chunk: bytes) -> None:
        if not chunk:
            raise EOFError
        self._came += chunk


class Outbox:
    """Sends messages in their order, without ever waiting.

    What the socket does not hold is sent by a thread, as the other end reads.
    """

    def __init__(self, pipe: MessagePipe) -> None:
        self._pipe = pipe
        self._left: collections.deque[memoryview] = collections.deque()
        self._sending = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, message: Any) -> None:
        """Sends a message now or later.

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
        """Waits until all is sent, or the other end is gone."""
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
            except OSError:  # The other end is gone, and so is what was for it.
                self._left.clear()


def pack(message: Any) -> bytes:
    """A message as it goes over the socket."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _HEADER.pack(len(data)) + data
