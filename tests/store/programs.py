"""Programs that the tests run as processes of their own; they talk by lines."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Acquires the studies that it is told, line by line.
ACQUIRE = """
import sys
from hoptree.store import Store, StudyHeldError
with Store(sys.argv[1], journal_url=sys.argv[2]) as store:
    print("ready", flush=True)
    for study in sys.stdin:
        try:
            print("token", store.lease(study.strip()).token, flush=True)
        except StudyHeldError as error:
            print("held", error, flush=True)
"""

PUT_FOR_EVER = """
import sys
from itertools import count
import numpy as np
from hoptree.store import FolderStates
states = FolderStates(sys.argv[1], durable=False)
for number in count():
    states.put(f"{sys.argv[2]}{number:05}", {"w": np.full(1_000_000, number)}, {"number": number})
    print(number, flush=True)
"""

# A limit on the size of files stops a write in its middle, each time at the same byte.
PUT_TOO_MUCH = """
import resource, signal, sys
import numpy as np
from hoptree.store import FolderStates, StoreFullError
def pause(*_):
    print("paused", flush=True)
    sys.stdin.readline()
if sys.argv[2] != "ignore":
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if sys.argv[2] == "die" else pause)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
try:
    FolderStates(sys.argv[1], durable=False).put("0abc", {"w": np.zeros(1_000_000)}, {})
except StoreFullError as error:
    print(error, flush=True)
"""


@contextmanager
def running(program: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process that is gone at the end of the block, however that comes."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str], text: str = "") -> None:
    assert process.stdin is not None
    process.stdin.write(text + "\n")
    process.stdin.flush()
