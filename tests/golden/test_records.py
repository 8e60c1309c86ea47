"""Entries of a journal as they are stored, byte by byte: who asked for a trial, variants, gangs, and layouts."""

from __future__ import annotations

from hoptree.core.events import USER, TrialAsked, TrialBranched, WorkerJoined
from hoptree.core.facts import Entry, FactPlace, RunFailedFact, UnitGiven
from hoptree.core.lineage import config_items
from hoptree.store.records import decode, encode
from tests.golden.journals import GOLDEN

CONFIG = config_items({"lr": 0.1})
ENTRIES = [
    Entry(TrialAsked(3, CONFIG, until=2, every=1, study="s", root="r", asked_by=(1, 2), variant="v")),
    Entry(TrialBranched(4, 3, 1, CONFIG, until=2, asked_by=(USER, 7))),
    Entry(
        WorkerJoined("w1", (0, 1), machine="n"),
        (UnitGiven(5, "w0", FactPlace("k", 3, "v"), 1, crew=("w1", "w2", "w3"), layout="data"),),
    ),
    Entry(
        RunFailedFact(5, "w0", FactPlace("k", 3, "v"), "out of memory", "memory", 1, limit=300, asked=400),
        (UnitGiven(6, "w0", FactPlace("k", 3, "v"), 1, layout="single+offload"),),
    ),
]


def test_entries_are_read_and_written_as_they_were() -> None:
    stored = (GOLDEN / "records-1.jsonl").read_bytes().splitlines()
    assert [decode(line) for line in stored] == ENTRIES
    assert [encode(entry) for entry in ENTRIES] == stored
