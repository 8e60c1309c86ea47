"""The recorder: writes what happens to the journal, a snapshot now and then, and why trials fail to a file each."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from hoptree.core.actions import EndTrial
from hoptree.core.fact_writer import FactWriter
from hoptree.core.snapshots import SNAPSHOT_VERSION, take_snapshot
from hoptree.core.steps import Step
from hoptree.driver.request_validation import shown_number
from hoptree.driver.state_reuse import reports_of
from hoptree.record.record import Record
from hoptree.report.failures import failure_text
from hoptree.store.logs import Logs

if TYPE_CHECKING:
    from hoptree.store import Lease, Store

SNAPSHOT_EVERY = 50_000  # entries of the journal: folding them takes about a second


@final
class JournalRecorder:
    """Watches the drive loop; ``seq`` is the entry at which the last snapshot stands."""

    def __init__(self, store: Store, lease: Lease, record: Record, seq: int) -> None:
        self._journal = store.journal
        self._writer = store.journal.writer(lease.study, lease.token)
        self._lease = lease
        self._record = record
        self._facts = FactWriter(record.state)
        self._logs = Logs(store.folder / "logs")
        self._taken = seq

    def append(self, step: Step) -> None:
        """Append a step to the journal; the end of a trial is durable."""
        ends = any(isinstance(action, EndTrial) for action in step.actions)
        found = reports_of(step, self._record.state)
        self._writer.append([(step.now, self._facts.entry(step))], durable=ends, reports=found)

    def take_snapshot(self, step: Step) -> None:
        """Take a snapshot when much has been written since the last one, at the end of a moment."""
        if not step.more and self._writer.tail.seq - self._taken >= SNAPSHOT_EVERY:
            self.write_snapshot()

    def write_snapshot(self) -> None:
        """Write what the journal comes to by now."""
        seq = self._writer.tail.seq
        if seq > self._taken:
            data = take_snapshot(self._record.state, self._record.now)
            self._journal.write_snapshot(self._lease.study, self._lease.token, seq, data, version=SNAPSHOT_VERSION)
            self._taken = seq

    def log_failures(self, step: Step) -> None:
        """Write what a trial failed of to a file, whole: messages are short and name it."""
        for action in step.actions:
            if isinstance(action, EndTrial) and action.ending == "failed":
                trial = self._record.by_number[action.trial]
                number = shown_number(self._record, trial)
                self._logs.write(self._logs.of_trial(trial.study, number), failure_text(trial, number))
