"""How long it takes until something happens: importing the library, and the page of help.

Each is the median of ten processes, with the bare interpreter beside them. The time of the processor is what a
machine with nothing else to do would take at most.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from typing import NamedTuple

from bench.results import record, table

TIMES = 10
LIMITS = {"import hoptree": 0.3, "hoptree --help": 0.5}
PROGRAMS = {
    "python": ["-c", "pass"],
    "import hoptree": ["-c", "import hoptree"],
    "hoptree --help": ["-c", "from hoptree.ui.cli import main; main()", "--help"],
}


class Start(NamedTuple):
    """Medians, in seconds."""

    wall: float
    processor: float


def measure(arguments: list[str]) -> Start:
    walls, processor = [], []
    for _ in range(TIMES + 1):
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        walls.append(time.perf_counter() - began)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return Start(statistics.median(walls[1:]), statistics.median(processor[1:]))  # the first finds cold files


def main() -> None:
    found = {name: measure(arguments) for name, arguments in PROGRAMS.items()}
    rows = [
        [name, f"{start.wall:.3f}", f"{start.processor:.3f}", LIMITS.get(name, "")] for name, start in found.items()
    ]
    text = table(["what", "seconds", "of the processor", "limit"], rows)
    record("start", "python -m bench.start", f"## Starting (medians of {TIMES} processes)\n\n{text}")
    late = [name for name, limit in LIMITS.items() if found[name].wall > limit]
    if late:
        sys.exit(f"too slow: {', '.join(late)}")


if __name__ == "__main__":
    main()
