"""Verification of a study: complete trials are retrained in fresh processes, and fingerprints compared."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from hoptree.core.errors import StudyChangedError, WorkloadError
from hoptree.core.plan import Trial
from hoptree.record.record import Record
from hoptree.record.retrain import Retrainer

if TYPE_CHECKING:
    from hoptree.store import Store
    from hoptree.study.study import Study

log = logging.getLogger("hoptree")


class Verification(msgspec.Struct, frozen=True):
    """A trial retrained in a fresh process: its stored fingerprint ("": missing or damaged) and the new one."""

    trial: int
    stored: str
    trained: str

    @property
    def holds(self) -> bool:
        """Whether both have the same bits."""
        return self.stored == self.trained


def verify(study: Study, store: Store, record: Record, trial: int | None) -> Iterator[Verification]:
    """Retrain complete trials (or one), and yield each comparison as soon as it is done."""
    from hoptree.record.fresh_processes import train_in_fresh_processes

    retrainer = Retrainer(record, study.trainer, study.data, study.seed)
    chosen = _verifiable(study.name, retrainer, _complete(study.name, record, trial))
    for number, result in train_in_fresh_processes(retrainer, chosen):
        yield Verification(number, _stored_fingerprint(store, record, chosen[number]), result.fingerprint)


def _complete(name: str, record: Record, trial: int | None) -> dict[int, Trial]:
    """Return the complete trials of a study by number, or the one that was asked for."""
    own = dict(enumerate(each for each in record.trials if each.study == name))
    if trial is not None:
        known = own.get(trial)
        if known is None or known.ending != "complete":
            state = "unknown" if known is None else known.ending or "running"
            raise WorkloadError(f"trial {trial} of {name!r}: it is {state}; expected a complete trial")
    return {number: each for number, each in own.items() if each.ending == "complete" and trial in (None, number)}


def _verifiable(name: str, retrainer: Retrainer, trials: dict[int, Trial]) -> dict[int, Trial]:
    """Leave out trials that were trained with other code, data or seed; raise an error if none is left."""
    others = [number for number, each in trials.items() if not retrainer.has_trained(each)]
    if others and len(others) == len(trials):
        raise StudyChangedError(
            f"study {name!r}: trials {others} were trained with other code, data or seed than this program has; "
            "restore what trained them, and verify again"
        )
    if others:
        log.warning("trials %s were trained before code or data changed: not verified", others)
    return {number: each for number, each in trials.items() if number not in others}


def _stored_fingerprint(store: Store, record: Record, trial: Trial) -> str:
    from hoptree.store import StateDamagedError, StateMissingError, fingerprint

    place = record.place(trial)
    assert place is not None
    try:
        return fingerprint(store.states.get(place.node.state_key(place.unit))[0])
    except (StateMissingError, StateDamagedError):
        return ""
