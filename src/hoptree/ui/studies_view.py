"""Studies as their store tells of them, without their code and without writing anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

import msgspec

from hoptree.core.errors import HoptreeError, WorkloadError
from hoptree.core.events import TrialBranched
from hoptree.core.schedules import Config, Schedule
from hoptree.record.opening import open_record
from hoptree.record.results import Results, Savings, TrialResult
from hoptree.record.spec import StudySpec
from hoptree.store import (
    StateDamagedError,
    StateMissingError,
    Store,
    StoreMissingError,
    StudyMissingError,
    StudyRecord,
    fingerprint,
)

_NAMED = 20  # studies that a message lists


@contextmanager
def reading(location: str, journal: str | None) -> Iterator[Store]:
    """Open a store that is there; nothing is created."""
    try:
        store = Store(location, create=False, journal_url=journal)
    except StoreMissingError:
        nor = ", or no journal at its URL" if journal else ""
        raise StoreMissingError(
            f"{Path(location).absolute()}: no store is there{nor}; run a study first, or say with --store where "
            "its folder is"
        ) from None
    with store:
        yield store


def find_study(store: Store, name: str) -> StudyView:
    """Return the study of that name, or say which ones there are."""
    refuse_unknown(store, name)
    known = store.catalog.find(name)  # refuses other formats
    assert known is not None
    return StudyView(store, known)


def refuse_unknown(store: Store, name: str) -> None:
    """Refuse a name that is no study's, and say which ones there are; they need not be readable."""
    names = [record.name for record in store.catalog.all()]
    if name not in names:
        others = f" and {len(names) - _NAMED} others" if len(names) > _NAMED else ""
        holds = ", ".join(names[:_NAMED]) + others if names else "none"
        raise StudyMissingError(f"{name}: no such study in {store.folder}; it holds {holds}")


@final
class StudyHead:
    """What the catalog and the lease say of a study: all there is of one that this Hoptree cannot read."""

    def __init__(self, store: Store, known: StudyRecord) -> None:
        self.name = known.name
        self.created = known.created
        self.driver = store.holder(known.name)
        self.status = known.status
        if self.driver is not None:
            self.status = "running"
        elif self.status == "running":
            self.status = "stopped"  # its driver was killed before it could say so

    def to_dict(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "name": self.name,
            "status": self.status,
            "created": datetime.fromtimestamp(self.created, UTC).isoformat(),
            "driver": None if self.driver is None else {"host": self.driver.host, "pid": self.driver.pid},
        }


@final
class StudyView:
    """A study with all that its journal tells; ``sources`` are the trials and epochs that others branched from."""

    def __init__(self, store: Store, known: StudyRecord) -> None:
        self.head = StudyHead(store, known)
        self.name = known.name
        self._states = store.states
        self.spec = _spec(known)
        self.record = open_record(store, known)
        dialogue = self.record.state.dialogue
        branched = {part.trial: (part.source, part.at) for part in dialogue if isinstance(part, TrialBranched)}
        shown = {trial.number: number for number, trial in enumerate(self.record.trials)}
        self.sources = {shown[trial]: (shown[source], at) for trial, (source, at) in branched.items()}
        self.savings = Savings.count(self.record.state, self.record.state.units, bytes_hopped=0)
        self.trials = [
            TrialResult(number, trial, self.record, store.states, None)
            for number, trial in enumerate(self.record.trials)
        ]
        self.results = Results(self.trials, self.spec.goal, self.savings)

    @property
    def best(self) -> TrialResult | None:
        """The best complete trial so far."""
        return self.results.find_best() if any(trial.state == "complete" for trial in self.trials) else None

    def config_before(self, trial: TrialResult) -> Config:
        """Return the config that a trial had until it branched."""
        return dict(self.record.trials[trial.number].history[-2].config)

    def trial(self, number: int) -> TrialResult:
        """Return a trial by its number."""
        for trial in self.trials:
            if trial.number == number:
                return trial
        last = len(self.trials) - 1
        numbers = f"0 to {last}" if last > 0 else "0, its only one" if last == 0 else "a study with trials"
        raise WorkloadError(f"trial {number} of {self.name!r}: not known; expected {numbers}")

    def state_file(self, trial: TrialResult) -> str | None:
        """Return the path or URL of a trial's last state; None before its first report, or when it is gone."""
        key = self._key(trial)
        return None if key is None or key not in self._states else self._states.address(key)

    def state_size(self, trial: TrialResult) -> int:
        """Return the bytes of a trial's last state; 0 if there is none."""
        key = self._key(trial)
        return 0 if key is None else self._states.size(key)

    def fingerprint(self, trial: TrialResult) -> str | None:
        """Return the fingerprint of a trial's stored state, None if there is no state that can be read."""
        key = self._key(trial)
        try:
            return None if key is None else fingerprint(self._states.get(key)[0])
        except (StateDamagedError, StateMissingError):
            return None

    @property
    def counts(self) -> dict[str, int]:
        """How many trials are in which state."""
        return count_states(self.trials)

    @property
    def nodes(self) -> dict[str, tuple[int, tuple[int, ...]]]:
        """By node of a cluster: how many workers it has, and what it holds; after a run, as that was last.

        A worker of a cluster has its node's name in the middle of its own; on one machine there are no nodes.
        """
        found: dict[str, tuple[int, tuple[int, ...]]] = {}
        for name, partitions in sorted(self.record.state.workers.items()):
            for node in name.split("-")[1:-1]:
                count, held = found.get(node, (0, ()))
                found[node] = (count + 1, tuple(sorted({*held, *partitions})))
        return found

    def summary(self) -> dict[str, Any]:
        """Return a line of the catalog, for programs."""
        best, metric = self.best, self.spec.goal.metric
        value = None if best is None else {"trial": best.number, "value": best.metrics.get(metric)}
        goal = msgspec.to_builtins(self.spec.goal)
        return {**self.head.to_dict(), "trials": self.counts, "goal": goal, "best": value}

    def details(self) -> dict[str, Any]:
        """Return the whole study, for programs."""
        asked = ("epochs_asked", "epochs_shared", "epochs_trained", "merge_rate")
        return {
            **self.summary(),
            "spec": msgspec.to_builtins(self.spec),
            "savings": {name: getattr(self.savings, name) for name in asked},
            "nodes": {node: {"workers": count, "partitions": held} for node, (count, held) in self.nodes.items()},
            "trials": [trial_to_dict(trial) for trial in self.trials],
        }

    def _key(self, trial: TrialResult) -> str | None:
        if not trial.epochs or trial.state == "running":
            return None
        place = self.record.place(self.record.trials[trial.number])
        return None if place is None else place.node.state_key(place.unit)


def all_studies(store: Store) -> Iterator[tuple[StudyHead, StudyView | HoptreeError]]:
    """Yield every study of a store; of one that cannot be read, its head and the reason."""
    for known in store.catalog.all():
        try:
            view = find_study(store, known.name)
            yield view.head, view
        except HoptreeError as error:
            yield StudyHead(store, known), error


def count_states(trials: Sequence[TrialResult]) -> dict[str, int]:
    """Return how many trials are in which state."""
    states = [trial.state for trial in trials]
    return {state: states.count(state) for state in ("complete", "stopped", "failed", "running")}


def trial_to_dict(trial: TrialResult) -> dict[str, Any]:
    """Return a trial for programs."""
    return {
        "number": trial.number,
        "config": {name: str(v) if isinstance(v, Schedule) else v for name, v in trial.config.items()},
        "state": trial.state,
        "epochs": trial.epochs,
        "metrics": trial.metrics,
        "error": trial.error,
    }


def _spec(known: StudyRecord) -> StudySpec:
    return StudySpec.read(known.spec)
