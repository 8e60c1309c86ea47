"""The heartbeat of a worker process: a thread that sends a byte periodically, over a separate channel.

It continues while a unit trains, however long that takes, and stops with the process. See
docs/decisions/0022-heartbeats.md for how a driver uses it.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress


def start_heartbeat(descriptor: int, interval: float) -> None:
    """Send a byte every ``interval`` seconds until the driver has exited."""
    channel = socket.socket(fileno=descriptor)
    threading.Thread(target=_beat, args=(channel, interval), name="heartbeat", daemon=True).start()


def _beat(channel: socket.socket, interval: float) -> None:
    with suppress(OSError):  # the driver has exited: the thread that reads commands notices it as well
        while True:
            with suppress(BlockingIOError):  # the driver has not read for long: unread heartbeats suffice
                channel.send(b"!", socket.MSG_DONTWAIT)
            time.sleep(interval)
