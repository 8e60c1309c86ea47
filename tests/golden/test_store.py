"""Stores that earlier versions have written are read by this one, and tell the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hoptree.store import Store
from hoptree.store.revisions import REVISIONS
from tests.golden.write_store import GOLDEN, NAME, PROFILE, shown

STORES = sorted(GOLDEN.glob("store-*"))


def test_there_is_one_of_every_revision() -> None:
    assert {path.name.removeprefix("store-") for path in STORES} >= set(REVISIONS.names)


@pytest.mark.parametrize("golden", STORES, ids=lambda path: path.name)
def test_a_golden_store_is_read(golden: Path, tmp_path: Path) -> None:
    copy = tmp_path / "store"
    shutil.copytree(golden, copy)
    assert shown(copy) == json.loads((golden / "trials.json").read_text())
    with Store(copy, create=False) as store:
        assert [entry.seq for entry in store.journal.read(NAME)] == list(range(1, store.journal.last(NAME) + 1))
        assert store.journal.last(NAME) > 20
        assert store.journal.read_snapshot(NAME, version=0) is not None
        profile = store.profiles.find("trainer", "data")
        assert list(profile.entries) == (PROFILE if golden.name >= "store-0003" else [])


@pytest.mark.parametrize("golden", STORES, ids=lambda path: path.name)
def test_a_golden_store_is_small(golden: Path) -> None:
    assert (golden / "journal.sqlite").stat().st_size < 200_000
