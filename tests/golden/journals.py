"""Writes golden journals: random histories that this version has recorded, and what they come to.

Run it from the root of the project, with ``python -m tests.golden.journals VERSION``, when the version of records
has grown, and leave the earlier files as they are: they are what users have on disk. Reading needs no test
framework, so that a copy of the sources with other names can read the files too.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from hoptree.core.fact_reader import fold
from hoptree.core.settings import Settings
from hoptree.core.study_state import StudyState
from hoptree.store.record_versions import upgraded
from hoptree.store.records import decode, encode

GOLDEN = Path(__file__).parent


def read(file: Path, **changed: Any) -> StudyState:
    """Fold a golden journal, by settings that may differ from those of whoever wrote it."""
    head, *lines = file.read_text().splitlines()
    about = json.loads(head)
    settings = msgspec.convert({**about["settings"], **changed}, Settings)
    version = int(about["version"])
    state = StudyState(settings)
    entries = [json.loads(line) for line in lines]
    fold(state, [(now, decode(upgraded(json.dumps(entry).encode(), version))) for now, entry in entries])
    return state


def summary(state: StudyState) -> list[dict[str, Any]]:
    """Return all that a user sees of the trials, and the names of the states that are there."""
    return [
        {
            "trial": trial.number,
            "config": [[name, str(value)] for name, value in trial.history[-1].config],
            "until": trial.until,
            "ending": trial.ending,
            "reason": trial.reason,
            "curve": {str(epoch): str(metrics["loss"]) for epoch, metrics in trial.curve.items()},
            "way": [
                node.key for node, _ in state.plan.path_with_ends(trial, trial.until * state.settings.partitions)
            ],
            "state": None if trial.final is None else trial.final.node.state_key(trial.final.unit),
        }
        for trial in state.trials.values()
    ]


def write(version: str) -> None:
    """Record a few histories of different kinds."""
    from random import Random

    from hoptree.core.facts import RECORD_VERSION
    from tests.histories import History

    for name, seed in (("strict", 11), ("free", 4), ("unshared", 23), ("others", 16), ("rebased", 8)):
        history = History(Random(seed), 70, learns=seed % 2 == 0, retries=True, rebases=name == "rebased")
        history.run()
        about = {"version": RECORD_VERSION, "settings": msgspec.to_builtins(history.settings)}
        lines = [json.dumps([now, json.loads(encode(entry))]) for now, entry in history.journal]
        file = GOLDEN / f"journal-{version}-{name}.jsonl"
        file.write_text("\n".join([json.dumps(about), *lines]) + "\n")
        expected = json.dumps(summary(read(file)), indent=1)
        file.with_suffix(".trials.json").write_text(expected + "\n")


if __name__ == "__main__":
    write(sys.argv[1])
