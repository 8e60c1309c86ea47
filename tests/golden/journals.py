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


def ledger(state: StudyState) -> dict[str, Any]:
    """Return the ledger of nodes as plain data."""
    found: dict[str, Any] = json.loads(msgspec.json.encode(state.nodes.rows))
    return found


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
    write_nodes(version)


def write_nodes(version: str) -> None:
    """Record a history whose workers are on nodes that are paid for."""
    from random import Random

    from hoptree.core.events import (
        AllocationPlanned,
        DriverStarted,
        Event,
        NodeLost,
        NodeReleased,
        NodesRequested,
        NodeStarted,
        WorkerJoined,
        WorkerLost,
    )
    from hoptree.core.facts import RECORD_VERSION, Entry, StateEvaluatedFact, UnitFinishedFact
    from hoptree.elastic.allocation import Allocation, AllocationPlan, Range, StagePlan
    from hoptree.elastic.instance import Instance
    from tests.histories import History

    history = History(Random(12), 70)
    history.run()
    instance = Instance("large", devices=2, price=36.0, provision=30.0, start=5.0)
    stages = (StagePlan(8, 3, 1, 35.0, 60.0), StagePlan(2, 1, 2, 60.0, 80.0))
    figures = Range(80.0, 75.0, 90.0), Range(1.5, 1.4, 1.75)
    plan = AllocationPlan((Allocation(instance, stages, *figures),), *figures, deadline=100.0, risk=0.01).to_dict()
    entries = [
        (0.0, Entry(AllocationPlanned(plan, 0, "start"))),
        (0.0, Entry(NodesRequested(3))),
    ]
    here: set[str] = set()
    for index, (now, entry) in enumerate(history.journal):
        events: list[Event] = []
        match entry.event:
            case WorkerJoined(worker):
                if worker not in here:
                    events.append(NodeStarted(f"node-{worker}", 2, waited=1.5))
                here.add(worker)
                joined = msgspec.structs.replace(entry.event, node=f"node-{worker}")
                entry = msgspec.structs.replace(entry, event=joined)
            case WorkerLost(worker) if worker in here:
                here.discard(worker)
                kind = NodeReleased if any(isinstance(each.event, NodeLost) for _, each in entries) else NodeLost
                events.append(kind(f"node-{worker}"))
            case UnitFinishedFact() | StateEvaluatedFact():
                entry = msgspec.structs.replace(entry, event=msgspec.structs.replace(entry.event, seconds=0.5))
            case DriverStarted():
                here.clear()
            case _:
                pass
        if index == len(history.journal) // 2:
            entries.append((now, Entry(AllocationPlanned(plan, 1, "stage"))))
        entries += [(now, Entry(event)) for event in events]
        entries.append((now, entry))
    about = {"version": RECORD_VERSION, "settings": msgspec.to_builtins(history.settings)}
    lines = [json.dumps([now, json.loads(encode(entry))]) for now, entry in entries]
    file = GOLDEN / f"journal-{version}-nodes.jsonl"
    file.write_text("\n".join([json.dumps(about), *lines]) + "\n")
    file.with_suffix(".trials.json").write_text(json.dumps(summary(read(file)), indent=1) + "\n")
    file.with_suffix(".ledger.json").write_text(json.dumps(ledger(read(file)), indent=1) + "\n")


if __name__ == "__main__":
    write(sys.argv[1])
