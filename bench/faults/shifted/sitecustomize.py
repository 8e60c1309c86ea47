"""Found first in PYTHONPATH, this shifts the clock of a program by the seconds that a file says at that moment."""

import os
import time

_FILE = os.environ.get("HOPTREE_FAULTS_CLOCK", "")
_time = time.time


def _shifted() -> float:
    try:
        with open(_FILE) as file:
            return _time() + float(file.read() or 0.0)
    except OSError:
        return _time()


if _FILE:
    time.time = _shifted
