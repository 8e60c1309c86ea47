"""Wishing: what a user asks of a study becomes a wish that its driver can carry out, or is refused at once.

One piece of code for Python, for the command line, and for a driver that takes up what somebody wrote down before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from hoptree.core.errors import HoptreeError, WorkloadError
from hoptree.core.keys import history_key
from hoptree.core.lineage import ConfigItems, Phase, config_items, segments
from hoptree.core.plan import Trial
from hoptree.core.schedules import Config
from hoptree.record.record import Record
from hoptree.search.checks import whole
from hoptree.store.requests import AddTrial, CloneTrial, ExtendTrial, RetryTrial, StopTrial, UserRequest

_MOST = 100_000  # epochs: what is more is a slip of the finger, and would keep a driver busy with planning


def addition(config: Config, epochs: int, every: int = 1) -> AddTrial:
    """Return the wish that a config be trained; it is the whole config."""
    wish = AddTrial(config_items(config), epochs, every)
    check(wish)
    return wish


def extension(record: Record, study: str, trial: int, epochs: int) -> ExtendTrial:
    """Return the wish that a trial be trained up to an epoch; refuse what cannot be."""
    check(ExtendTrial(trial, epochs))
    known = shown_trial(record, study, trial)
    if known.ending in ("stopped", "failed"):
        raise WorkloadError(
            f"trial {trial}: it is {known.ending}; clone it from an epoch that it has reached, {_reached(known)}"
        )
    if epochs <= known.until:
        raise WorkloadError(
            f"epochs: {epochs}; expected more than the {known.until} that trial {trial} has already"
        )
    return ExtendTrial(trial, epochs, history_key(known.history), known.until)


def clone(
    record: Record, study: str, trial: int, at: int, changes: Config, epochs: int, every: int = 1
) -> CloneTrial:
    """Return the wish for a new trial that follows another one up to an epoch; refuse what cannot be."""
    source = shown_trial(record, study, trial)
    config = config_items(changed(record, study, trial, changes))
    whole("at", at, 1, f"what differs from the beginning is added: add(…, like={trial})")
    if source.ending in ("stopped", "failed"):
        if at > source.reached:
            raise WorkloadError(
                f"at: epoch {at} of trial {trial}, which is {source.ending}; expected an epoch that it has "
                f"reached, {_reached(source)}"
            )
    elif at > source.until:
        raise WorkloadError(f"at: epoch {at} of trial {trial}; expected 1 to {source.until}, as far as it goes")
    wish = CloneTrial(trial, at, config, epochs, every, history_key(source.history))
    check(wish)
    return wish


def giving_up(record: Record, study: str, trial: int) -> StopTrial:
    """Return the wish that a trial be given up; one that has ended is refused."""
    known = shown_trial(record, study, trial)
    if known.ending is not None:
        raise WorkloadError(f"trial {trial}: it is {known.ending} already; expected one that still runs")
    return StopTrial(trial, history_key(known.history), known.until)


def retrials(record: Record, study: str, trial: int | None = None) -> list[RetryTrial]:
    """Return the wishes that failed trials, or one of them, be trained again; having none is an error."""
    if trial is not None:
        known = shown_trial(record, study, trial)
        if known.ending != "failed":
            state = "running" if known.ending is None else known.ending
            raise WorkloadError(f"trial {trial} of {study!r}: it is {state}; expected one that failed")
        return [RetryTrial(trial, history_key(known.history), known.retries)]
    found = retrials_of_failed(record, study)
    if not found:
        trials = sum(known.study == study for known in record.trials)
        raise WorkloadError(f"{study}: none of its {trials} trials failed; there is nothing to retry")
    return found


def retrials_of_failed(record: Record, study: str) -> list[RetryTrial]:
    """Return the wishes that all failed trials be trained again; there may be none."""
    own = [known for known in record.trials if known.study == study]
    failed = [(number, known) for number, known in enumerate(own) if known.ending == "failed"]
    return [RetryTrial(number, history_key(known.history), known.retries) for number, known in failed]


def changed(record: Record, study: str, trial: int, changes: Config) -> Config:
    """Return the config that a trial ended with, with some values changed.

    Names that no trial of the study has are taken for mistakes.
    """
    if not isinstance(changes, Mapping):
        raise WorkloadError(f"config: {changes!r}; expected names and values, such as {{'lr': 0.01}}")
    if not changes:
        raise WorkloadError("config: nothing is changed; expected at least one name with its value, as lr=0.01")
    source = shown_trial(record, study, trial)
    own = (known for known in record.trials if known.study == study)
    names = {name: None for known in own for name, _ in known.history[-1].config}
    for name in changes:
        if name not in names:
            raise WorkloadError(f"config: {name!r} is in no config of {study}; expected one of {', '.join(names)}")
    return dict(source.history[-1].config) | dict(changes)


def check(wish: UserRequest) -> None:
    """Refuse what no driver can carry out, in whatever state the study is."""
    match wish:
        case AddTrial(config, until, every):
            _epochs(until)
            _every(every)
            _plan(config, until)
        case CloneTrial(trial, at, config, until, every):
            whole("trial", trial, 0)
            whole("at", at, 1)
            _epochs(until)
            if until <= at:
                raise WorkloadError(f"epochs: {until}; expected more than the {at} before the branch")
            _every(every)
            _plan(config, until)
        case ExtendTrial(trial, until):
            whole("trial", trial, 0)
            _epochs(until)
        case StopTrial(trial) | RetryTrial(trial):
            whole("trial", trial, 0)
        case _:
            assert_never(wish)


def shown_trial(record: Record, study: str, number: int) -> Trial:
    """Return a trial by the number under which its study shows it."""
    whole("trial", number, 0)
    own = [trial for trial in record.trials if trial.study == study]
    if number >= len(own):
        raise HoptreeError(f"trial {number} of {study!r}: not known; it has {len(own)} trials, numbered from 0")
    return own[number]


def shown_number(record: Record, trial: Trial) -> int:
    """Return the number under which a trial's study shows it."""
    own = (number for number, known in record.by_number.items() if known.study == trial.study)
    return next(place for place, number in enumerate(own) if number == trial.number)


def _epochs(epochs: object) -> None:
    whole("epochs", epochs, 1)
    if isinstance(epochs, int) and epochs > _MOST:
        raise WorkloadError(f"epochs: {epochs}; expected at most {_MOST:,}")


def _every(every: object) -> None:
    whole("every", every, 0, "the epochs between reports, or 0: only at the end")


def _plan(config: ConfigItems, until: int) -> None:
    """Refuse a config whose values cannot be laid out up to an epoch."""
    try:
        segments((Phase(0, config_items(dict(config))),), 1, until)
    except (TypeError, ArithmeticError, AssertionError) as error:  # of a schedule that nothing of ours has made
        raise WorkloadError(f"config: {error}; expected values, or schedules as ht.cosine makes them") from None


def _reached(trial: Trial) -> str:
    return f"1 to {trial.reached}" if trial.reached else "but it has reached none: add its config anew"
