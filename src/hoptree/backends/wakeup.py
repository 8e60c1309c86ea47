"""A socket that lets any thread, or a signal handler, wake one that waits for several sources."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import final


@final
class Wakeup:
    """``source`` becomes readable after ``notify`` until it is cleared."""

    def __init__(self) -> None:
        self.source, self._sender = socket.socketpair()
        self.source.setblocking(False)
        self._sender.setblocking(False)

    def notify(self) -> None:
        """Make the source readable; does nothing after ``close``."""
        with suppress(OSError):  # the buffer is full of notifications that nobody has read yet, or it is closed
            self._sender.send(b"!")

    def clear(self) -> None:
        """Read all notifications; one that comes later makes the source readable again."""
        with suppress(BlockingIOError):
            while self.source.recv(4096):
                pass

    def close(self) -> None:
        """Close both ends."""
        self.source.close()
        self._sender.close()
