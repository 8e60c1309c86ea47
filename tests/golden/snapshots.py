"""Writes golden snapshots: the states of studies to which the golden journals come, as they are stored.

Run it from the root of the project, with ``python -m tests.golden.snapshots VERSION``, when the version of
snapshots has grown or a field has been added, and leave the earlier files: they are what users have on disk.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec

from hoptree.core.settings import Settings
from hoptree.core.snapshots import read_snapshot, take_snapshot
from hoptree.core.study_state import StudyState
from tests.golden.journals import GOLDEN, read

NOW = 12.5
SHORTAGES = {(0, "data", 4): (2_000_000, 3_500_000), (0, "single", 1): (1_000_000, 0)}
"""Layouts that did not fit, by lineage, layout and workers; the limit, and what was asked for (0: unknown)."""


def read_golden_snapshot(file: Path) -> tuple[StudyState, float]:
    """Return the state of a golden snapshot, and its time."""
    return read_snapshot(file.read_bytes(), settings_of(file))


def journal_of(file: Path) -> Path:
    """Return the golden journal that a golden snapshot was taken of."""
    return file.with_name(file.name.replace("snapshot-", "journal-")).with_suffix(".jsonl")


def settings_of(file: Path) -> Settings:
    """Return the settings of the study of a golden snapshot."""
    head = journal_of(file).read_text().splitlines()[0]
    return msgspec.convert(json.loads(head)["settings"], Settings)


def write(version: str) -> None:
    """Take a snapshot of what each golden journal comes to; one of them has layouts that did not fit."""
    for journal in sorted(GOLDEN.glob(f"journal-{version}-*.jsonl")):
        state = read(journal)
        if journal.stem.endswith("-free"):
            state.too_large.update(SHORTAGES)
        file = journal.with_name(journal.name.replace("journal-", "snapshot-")).with_suffix(".msgpack")
        file.write_bytes(take_snapshot(state, NOW))


if __name__ == "__main__":
    write(sys.argv[1])
