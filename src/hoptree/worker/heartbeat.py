"""The heartbeat of a worker process: a thread that sends a byte again and again, by a channel of its own.

It goes on while a unit trains, however long that takes; it stops with the process. See
docs/decisions/0022-heartbeats.md for what a driver makes of it.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress


def start_heartbeat(descriptor: int, interval: float) -> None:
    """Send a byte every ``interval`` seconds until the driver is gone."""
    channel = socket.socket(fileno=descriptor)
    threading.Thread(target=_beat, args=(channel, interval), name="heartbeat", daemon=True).start()


def _beat(channel: socket.socket, interval: float) -> None:
    with suppress(OSError):  # the driver is gone: the thread that reads commands notices as well
        while True:
            with suppress(BlockingIOError):  # the driver has not read for long: what it finds will do
                channel.send(b"!", socket.MSG_DONTWAIT)
            time.sleep(interval)
