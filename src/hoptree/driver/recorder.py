"""The recorder of a run: writes the journal, a snapshot now and then, and a file for each failed trial."""

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

SNAPSHOT_EVERY = 50_000  # journal entries: replaying them takes about a second


@final
class JournalRecorder:
    """Observes the drive loop; ``seq`` is the journal entry of the last snapshot."""

    def __init__(self, store: Store, lease: Lease, record: Record, seq: int) -> None:
        self._journal = store.journal
        self._writer = store.journal.writer(lease.study, lease.token)
        self._lease = lease
        self._record = record
        self._facts = FactWriter(record.state)
        self._logs = Logs(store.folder / "logs")
        self._snapshot_seq = seq

    def append(self, step: Step) -> None:
        """Append a step to the journal, durably if a trial ends."""
        is_durable = any(isinstance(action, EndTrial) for action in step.actions)
        found = reports_of(step, self._record.state)
        self._writer.append([(step.now, self._facts.entry(step))], durable=is_durable, reports=found)

    def take_snapshot(self, step: Step) -> None:
        """Write a snapshot if many entries were written since the last one, at the end of a batch of events."""
        if not step.more and self._writer.tail.seq - self._snapshot_seq >= SNAPSHOT_EVERY:
            self.write_snapshot()

    def write_snapshot(self) -> None:
        """Write a snapshot of the state that the journal has led to, if it has grown."""
        seq = self._writer.tail.seq
        if seq > self._snapshot_seq:
            data = take_snapshot(self._record.state, self._record.now)
            self._journal.write_snapshot(self._lease.study, self._lease.token, seq, data, version=SNAPSHOT_VERSION)
            self._snapshot_seq = seq

    def log_failures(self, step: Step) -> None:
        """Write the full error of a failed trial to a file: messages are short and name that file."""
        for action in step.actions:
            if isinstance(action, EndTrial) and action.ending == "failed":
                trial = self._record.by_number[action.trial]
                number = shown_number(self._record, trial)
                self._logs.write(self._logs.of_trial(trial.study, number), failure_text(trial, number))
