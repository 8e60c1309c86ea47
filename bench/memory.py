"""The peak of a program's memory."""

from __future__ import annotations

import re
from pathlib import Path


def peak_memory() -> int:
    """Return the most bytes that this program has had in memory.

    Not what ``getrusage`` says: that counts what the process had before it became this program, which is all that
    its parent had.
    """
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found.group(1)) * 1024
