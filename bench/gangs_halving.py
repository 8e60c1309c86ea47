"""The last rungs of a halving search on two cores, with and without gangs.

    python -m bench.gangs_halving

Eight configs of the transformer of ``bench.shards`` are halved (1, 2, 4, 8 epochs); in the last rung one lineage is
left for two workers. Both runs have two shards, so they train the same bits; without gangs the layout is
``single``. Each is a program of its own, interleaved.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from torch.nn.functional import cross_entropy

import hoptree as ht
from bench.results import record, table
from bench.shards import CASES
from hoptree.core.facts import UnitFinishedFact, UnitGiven
from hoptree.store import Store

REPEATS = 3
CASE = CASES["transformer, batch 128"]
BATCHES = 12  # of a partition


def study(folder: Path, name: str, layout: str) -> ht.Study:
    """Return the search; both layouts use one dataset."""
    data = folder / "data"
    columns: dict[str, Any] = {**CASE.data(BATCHES * 2 + 2)}
    return ht.Study(
        name,
        trainer=ht.Torch(CASE.net, loss=cross_entropy, shards=2, layout=layout),
        data=ht.Dataset.from_arrays(**columns, partitions=2, valid=0.05, to=data),
        space={"lr": ht.log(1e-4, 1e-2), "batch_size": CASE.batch},
        search=ht.SuccessiveHalving(8, max_epochs=8, factor=2),
        minimize="loss",
        store=folder / name,
    )


def run(folder: Path, name: str, layout: str) -> None:
    """Run one search in this process, and print what it took."""
    results = study(folder, name, layout).run(workers=2)
    begins, ends, widths = {}, [], {}
    with Store(folder / name, create=False) as store:
        for recorded in store.journal.read(name):
            for decided in recorded.entry.decided:
                if isinstance(decided, UnitGiven):
                    begins[decided.run], widths[decided.run] = recorded.now, 1 + len(decided.crew)
            event = recorded.entry.event
            if isinstance(event, UnitFinishedFact):
                ends.append((recorded.now, event.run, event.at.unit))
    last = [(now, number) for now, number, unit in ends if unit >= 2 * 4]  # the last rung: epochs 5 to 8
    print(
        json.dumps(
            {
                "whole": max(now for now, _, _ in ends) - min(begins.values()),
                "last rung": max(now for now, _ in last) - min(begins[number] for _, number in last),
                "gangs": sum(widths[number] > 1 for _, number, _ in ends),
                "units": len(ends),
                "print": results.best.fingerprint,
            }
        )
    )


def main() -> None:
    """Start the programs, and record their times."""
    found: dict[str, list[dict[str, Any]]] = {"auto": [], "single": []}
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(REPEATS):
            for layout in ("auto", "single"):
                command = [sys.executable, "-m", "bench.gangs_halving", folder, f"{layout}-{repeat}", layout]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                found[layout].append(json.loads(done.stdout.splitlines()[-1]))
    prints = {each["print"] for runs in found.values() for each in runs}
    assert len(prints) == 1, prints
    rows = []
    for part in ("whole", "last rung"):
        pairs = [one[part] / two[part] for one, two in zip(found["auto"], found["single"], strict=True)]
        seconds = [statistics.median(each[part] for each in found[layout]) for layout in ("auto", "single")]
        ratio = f"{statistics.median(pairs):.2f} ({min(pairs):.2f} to {max(pairs):.2f})"
        rows.append([part, *(f"{each:.1f} s" for each in seconds), ratio])
    widths = found["auto"][-1]
    text = (
        f"## A halving search on two cores, with and without gangs ({REPEATS} interleaved repeats)\n\n"
        "Eight configs of the transformer (batch 128, two shards), 1 to 8 epochs of "
        f"{2 * BATCHES} batches, halved; two workers with one thread each. Median seconds from the first unit to "
        f"the last, and the ratio (least to greatest). Gangs trained {widths['gangs']} of {widths['units']} units "
        "of the last run. The best trial has the same fingerprint in all runs.\n\n"
    )
    record("gangs-halving", "python -m bench.gangs_halving", text + table(["", "gangs", "none", "ratio"], rows))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
    else:
        main()
