"""Read-only views of the studies in a store; they do not need the studies' code."""

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
from hoptree.record.cost import study_cost
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

_NAMED = 20  # studies that a message lists at most


@contextmanager
def reading(location: str, journal: str | None) -> Iterator[Store]:
    """Open an existing store; create nothing."""
    try:
        store = Store(location, create=False, journal_url=journal)
    except StoreMissingError:
        nor = ", or no journal at its URL" if journal else ""
        raise StoreMissingError(
            f"{Path(location).absolute()}: no store is there{nor}; run a study first, or give the store's folder "
            "with --store"
        ) from None
    with store:
        yield store


def find_study(store: Store, name: str) -> StudyView:
    """Return the study of that name; raise an error that lists the studies if there is none."""
    check_known(store, name)
    known = store.catalog.find(name)  # raises an error for other formats
    assert known is not None
    return StudyView(store, known)


def check_known(store: Store, name: str) -> None:
    """Raise an error that lists the studies, readable or not, if none has that name."""
    names = [record.name for record in store.catalog.all()]
    if name not in names:
        others = f" and {len(names) - _NAMED} others" if len(names) > _NAMED else ""
        holds = ", ".join(names[:_NAMED]) + others if names else "none"
        raise StudyMissingError(f"{name}: no such study in {store.folder}; it holds {holds}")


@final
class StudyHead:
    """A study's entry in the catalog and its driver: all that is known of a study this version cannot read."""

    def __init__(self, store: Store, known: StudyRecord) -> None:
        self.name = known.name
        self.created = known.created
        self.driver = store.holder(known.name)
        self.status = known.status
        if self.driver is not None:
            self.status = "running"
        elif self.status == "running":
            self.status = "stopped"  # its driver was killed before it could write the status

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {
            "name": self.name,
            "status": self.status,
            "created": datetime.fromtimestamp(self.created, UTC).isoformat(),
            "driver": None if self.driver is None else {"host": self.driver.host, "pid": self.driver.pid},
        }


@final
class StudyView:
    """A study and its trials, read from its journal; ``sources`` maps a trial to where it branched from."""

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
        self.cost = study_cost(self.record.state.nodes, self.record.now)
        self.results = Results(self.trials, self.spec.goal, self.savings, cost=self.cost)

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
        """Return the path or URL of a trial's last state; None before its first report, or if it was removed."""
        key = self._key(trial)
        return None if key is None or key not in self._states else self._states.address(key)

    def state_size(self, trial: TrialResult) -> int:
        """Return the size in bytes of a trial's last state; 0 if there is none."""
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
        """The number of trials per state."""
        return count_states(self.trials)

    @property
    def nodes(self) -> dict[str, tuple[int, tuple[int, ...]]]:
        """Per cluster node: its number of workers and its partitions; after a run, those at its end.

        A worker's name on a cluster contains its node's name in the middle; on one machine there are no nodes.
        """
        found: dict[str, tuple[int, tuple[int, ...]]] = {}
        for name, partitions in sorted(self.record.state.workers.items()):
            for node in name.split("-")[1:-1]:
                count, held = found.get(node, (0, ()))
                found[node] = (count + 1, tuple(sorted({*held, *partitions})))
        return found

    def summary(self) -> dict[str, Any]:
        """Return the study's line in the catalog, for JSON."""
        best, metric = self.best, self.spec.goal.metric
        value = None if best is None else {"trial": best.number, "value": best.metrics.get(metric)}
        goal = msgspec.to_builtins(self.spec.goal)
        return {**self.head.to_dict(), "trials": self.counts, "goal": goal, "best": value}

    def details(self) -> dict[str, Any]:
        """Return the whole study, for JSON."""
        asked = ("epochs_asked", "epochs_shared", "epochs_trained", "merge_rate")
        return {
            **self.summary(),
            "spec": msgspec.to_builtins(self.spec),
            "savings": {name: getattr(self.savings, name) for name in asked},
            "cost": None if self.cost is None else self.cost.to_dict(),
            "nodes": {node: {"workers": count, "partitions": held} for node, (count, held) in self.nodes.items()},
            "trials": [trial_to_dict(trial) for trial in self.trials],
        }

    def _key(self, trial: TrialResult) -> str | None:
        if not trial.epochs or trial.state == "running":
            return None
        place = self.record.place(self.record.trials[trial.number])
        return None if place is None else place.node.state_key(place.unit)


def all_studies(store: Store) -> Iterator[tuple[StudyHead, StudyView | HoptreeError]]:
    """Yield every study of a store; for one that cannot be read, its head and the error."""
    for known in store.catalog.all():
        try:
            view = find_study(store, known.name)
            yield view.head, view
        except HoptreeError as error:
            yield StudyHead(store, known), error


def count_states(trials: Sequence[TrialResult]) -> dict[str, int]:
    """Return the number of trials per state."""
    states = [trial.state for trial in trials]
    return {state: states.count(state) for state in ("complete", "stopped", "failed", "running")}


def trial_to_dict(trial: TrialResult) -> dict[str, Any]:
    """Return a trial for JSON."""
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
