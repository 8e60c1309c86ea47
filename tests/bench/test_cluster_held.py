"""What bench/cluster says that a node holds is what its processes have in memory, each file once."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from bench.cluster.closed import Worker
from bench.cluster.nodes import held

PAGES = 64


def test_pages_that_were_touched_are_held(tmp_path: Path) -> None:
    size = PAGES * mmap.PAGESIZE
    for name in ("a", "b", "other"):
        (tmp_path / name).write_bytes(b"x" * size)
    maps = []
    for name, read in (("a", size), ("b", 0), ("other", size)):
        with (tmp_path / name).open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        mapped.madvise(mmap.MADV_RANDOM)  # nothing is read ahead
        assert mapped[:read].count(b"x") == read
        maps.append(mapped)
    found = held([Worker(os.getpid(), "node")], ["a", "b"])
    assert found == {"node": (size, 2 * size)}
    again = held(
        [Worker(os.getpid(), "node"), Worker(os.getpid(), "node"), Worker(os.getpid(), "other")], ["a", "b"]
    )
    assert again == {"node": (size, 2 * size), "other": (size, 2 * size)}
    for mapped in maps:
        mapped.close()


def test_a_process_that_has_ended_holds_nothing() -> None:
    assert held([Worker(2**22 + 1, "node")], ["a"]) == {}
