"""Snapshots of earlier versions are read as they were written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hoptree.core.snapshots import SNAPSHOT_VERSION, snapshot_of
from tests.golden.journals import GOLDEN, read, summary
from tests.golden.snapshots import NOW, SHORTAGES, journal_of, read_golden_snapshot, settings_of

SNAPSHOTS = sorted(GOLDEN.glob("snapshot-*.msgpack"))


def test_there_is_one_of_every_version() -> None:
    assert {int(file.stem.split("-")[1]) for file in SNAPSHOTS} == set(range(1, SNAPSHOT_VERSION + 1))


@pytest.mark.parametrize("file", SNAPSHOTS, ids=lambda path: path.stem)
def test_a_golden_snapshot_is_the_state_that_its_journal_comes_to(file: Path) -> None:
    state, now = read_golden_snapshot(file)
    assert now == NOW
    assert summary(state) == json.loads(journal_of(file).with_suffix(".trials.json").read_text())
    folded = read(journal_of(file))
    folded.too_large.update(state.too_large)
    assert snapshot_of(state, now) == snapshot_of(folded, now)
    assert read_golden_snapshot(file)[0].settings == settings_of(file)


def test_layouts_that_did_not_fit_are_read() -> None:
    state, _ = read_golden_snapshot(GOLDEN / "snapshot-1-free.msgpack")
    assert state.too_large == SHORTAGES
