"""A folder for one program, of which nothing is left: not even in shared memory, if the program is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree

STUDY = "bench"  # the name of every study here, …
STORE = "store"  # … and the folder of its store
MEMORY = Path("/dev/shm")


def memory_of(out: Path) -> Path:
    """Return where a program may put files into shared memory; its own as long as the bench's folder is."""
    return MEMORY / out.parent.name


@contextmanager
def workspace(folder: Path) -> Iterator[Path]:
    """Make an empty folder, and remove it and what belongs to it afterwards."""
    out = folder / "out"
    out.mkdir()
    try:
        yield out
    finally:
        from hoptree.backends.local import slots_of

        for left in (out, memory_of(out), *slots_of(out / STORE, STUDY)):
            rmtree(left, ignore_errors=True)
