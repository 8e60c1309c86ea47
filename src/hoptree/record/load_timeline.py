"""Loading a study's timeline from its journal; this needs neither its code nor its states."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from hoptree.core.errors import HoptreeError
from hoptree.record.node_history import node_timeline
from hoptree.record.opening import open_record
from hoptree.record.record import Record
from hoptree.record.spec import StudySpec
from hoptree.report.study_timeline import StudyTimeline
from hoptree.report.timeline_builder import TimelineBuilder
from hoptree.search.protocol import Goal

if TYPE_CHECKING:
    from hoptree.store import Store, StudyRecord


def load_timeline(store: Store, name: str, goal: Goal | None = None) -> StudyTimeline:
    """Return the timeline of a study, from its own journal or from that of a group it was run with.

    ``goal`` is that of a member of a group; the catalog has only the first member's.
    """
    known = find_recorded_study(store, name)
    spec = StudySpec.read(known.spec)
    goal = goal or spec.goal
    record = Record(spec.settings)
    builder = TimelineBuilder(record.state)
    for step in record.replay(store.journal.read(known.name)):
        builder.see(step)
    timeline = builder.study_timeline(
        name,
        goal.metric,
        goal.maximize,
        only=name if name in spec.members else None,
        facts=_facts(store, known, spec, goal),
        environments=tuple(spec.environments),
        created=known.created,
    )
    return msgspec.structs.replace(timeline, nodes=node_timeline(record.state.nodes, record.now))


def find_recorded_study(store: Store, name: str) -> StudyRecord:
    """Return the catalog entry of a study, or of a group that it was run with: the one with the most trials of it.

    Its own entry wins a tie.
    """
    from hoptree.store import StudyMissingError

    studies = store.catalog.all()
    own = [known for known in studies if name in (known.name, *known.spec.get("members", ()))]
    recorded = sorted(
        (known for known in own if store.journal.last(known.name)), key=lambda known: known.name != name
    )
    if not recorded:
        if any(known.name == name for known in studies):
            raise StudyMissingError(f"{name}: it has no trials yet in {store.folder}; run it first")
        holds = ", ".join(known.name for known in studies[:20]) or "none"
        raise StudyMissingError(f"{name}: no such study in {store.folder}; it holds {holds}; run it first")
    return recorded[0] if len(recorded) == 1 else max(recorded, key=lambda known: _extent(store, known, name))


def _extent(store: Store, known: StudyRecord, name: str) -> tuple[int, int]:
    """Return how much a journal holds of a study: its trials, and their epochs."""
    try:
        own = [trial for trial in open_record(store, known).trials if trial.study == name]
    except HoptreeError:
        return 0, 0  # written by another version: skip it
    return len(own), sum(trial.done for trial in own)


def _facts(store: Store, known: StudyRecord, spec: StudySpec, goal: Goal) -> dict[str, str]:
    return {
        "status": "running" if store.holder(known.name) else known.status,
        "begun": datetime.fromtimestamp(known.created, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "goal": f"{'maximize' if goal.maximize else 'minimize'} {goal.metric}",
        "search": spec.search,
        "space": "\n".join(f"{name}: {values}" for name, values in spec.space["names"]),
        "seed": str(spec.seed),
        "order": f"{spec.settings.order}, with {'shared' if spec.share else 'no shared'} beginnings",
        "partitions": str(spec.settings.partitions),
        "data": spec.data,
        "trainer": spec.trainer,
        "program": spec.program,
    }
