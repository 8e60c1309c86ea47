"""The desk: where a driver takes up what users wish for while the study runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, assert_never, final

from hoptree.core.errors import HoptreeError, WorkloadError
from hoptree.core.events import Event, TrialAsked, TrialBranched, TrialExtended, TrialStopped
from hoptree.core.lineage import config_items
from hoptree.core.plan import Trial
from hoptree.core.schedules import Config
from hoptree.record import Record
from hoptree.store.wishes import Add, Clone, GiveUp, Prolong, Wish

if TYPE_CHECKING:
    from hoptree.store import Store

WISHED = 1_000_000_000  # trials that users asked for are numbered from here; searches number theirs from 0


@final
class Desk:
    """Turns wishes into events for the engine; what has been done already is not done again."""

    def __init__(self, store: Store, record: Record, studies: Sequence[tuple[str, bool]], root: str) -> None:
        self._store = store
        self._record = record
        self._studies = studies  # names, and whether their trials share
        self._root = root
        self._taken = dict.fromkeys((name for name, _ in studies), 0)

    def take(self) -> list[Event]:
        """Return what users have wished for since this was asked last."""
        return [event for name, share in self._studies for event in self._of(name, share)]

    def _of(self, study: str, share: bool) -> Iterator[Event]:
        for number, wish in self._store.wishes.after(study, self._taken[study]):
            self._taken[study] = number
            event = self._event(study, share, WISHED + number, wish)
            if event is not None:
                yield event

    def _event(self, study: str, share: bool, number: int, wish: Wish) -> Event | None:
        trials = self._record.engine.trials
        match wish:
            case Add(config, until, every):
                asked = TrialAsked(number, config, until, every, study, self._root, alone=not share)
                return None if number in trials else asked
            case Clone(trial, at, config, until, every):
                source = shown_trial(self._record, study, trial).number
                return None if number in trials else TrialBranched(number, source, at, config, until, every)
            case Prolong(trial, until):
                known = shown_trial(self._record, study, trial)
                done = known.until >= until or known.ending in ("stopped", "failed")
                return None if done else TrialExtended(known.number, until)
            case GiveUp(trial):
                known = shown_trial(self._record, study, trial)
                return None if known.ending in ("stopped", "failed") else TrialStopped(known.number)
            case _:
                assert_never(wish)


def shown_trial(record: Record, study: str, number: int) -> Trial:
    """Return a trial by the number under which its study shows it."""
    own = [trial for trial in record.trials if trial.study == study]
    if not 0 <= number < len(own):
        raise HoptreeError(f"trial {number} of {study!r}: not known; it has {len(own)} trials, numbered from 0")
    return own[number]


def shown_number(record: Record, trial: Trial) -> int:
    """Return the number under which a trial's study shows it."""
    own = (number for number, known in record.engine.trials.items() if known.study == trial.study)
    return next(place for place, number in enumerate(own) if number == trial.number)


def extension(record: Record, study: str, trial: int, epochs: int) -> Prolong:
    """Return the wish that a trial be trained up to an epoch; refuse what cannot be."""
    known = shown_trial(record, study, trial)
    if known.ending in ("stopped", "failed"):
        raise WorkloadError(f"trial {trial}: it is {known.ending}; clone it from an epoch that it has reached")
    if epochs <= known.until:
        raise WorkloadError(
            f"epochs: {epochs}; expected more than the {known.until} that trial {trial} has already"
        )
    return Prolong(trial, epochs)


def clone(record: Record, study: str, trial: int, at: int, config: Config, epochs: int, every: int = 1) -> Clone:
    """Return the wish for a new trial that follows another one up to an epoch; refuse what cannot be."""
    source = shown_trial(record, study, trial)
    if not 0 < at <= source.until:
        raise WorkloadError(f"at: epoch {at} of trial {trial}; expected 1 to {source.until}, as far as it goes")
    if epochs <= at:
        raise WorkloadError(f"epochs: {epochs}; expected more than the {at} before the branch")
    return Clone(trial, at, config_items(config), epochs, every)
