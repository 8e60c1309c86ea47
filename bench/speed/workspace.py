"""A folder for one program, of which nothing is left: not even in shared memory, if the program is killed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
def workspace(folder: Path, studies: Iterable[tuple[str, str]] = ((STORE, STUDY),)) -> Iterator[Path]:
    """Make an empty folder; afterwards remove it and what belongs to it, such as the slots of the studies."""
    out = folder / "out"
    out.mkdir()
    try:
        yield out
    finally:
        from hoptree.backends.local import slot_folders_of_study

        slots = (slot for store, study in studies for slot in slot_folders_of_study(out / store, study))
        for left in (out, memory_of(out), *slots):
            rmtree(left, ignore_errors=True)
