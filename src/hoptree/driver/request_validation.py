"""Validation of user requests: returns a request that a driver can carry out, or raises an error at once.

Python, the command line, and a driver that reads a request from the store all validate with this code.
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

_MOST = 100_000  # epochs: more is a typing error, and would keep a driver busy with planning


def addition(config: Config, epochs: int, every: int = 1) -> AddTrial:
    """Return the request to train a config; ``config`` is the whole config."""
    request = AddTrial(config_items(config), epochs, every)
    check(request)
    return request


def extension(record: Record, study: str, trial: int, epochs: int) -> ExtendTrial:
    """Return the request to train a trial up to an epoch; raise an error if that is not possible."""
    check(ExtendTrial(trial, epochs))
    known = shown_trial(record, study, trial)
    if known.ending in ("stopped", "failed"):
        raise WorkloadError(
            f"trial {trial}: it is {known.ending}; clone it from an epoch that it has reached, {_reached(known)}"
        )
    if epochs <= known.until:
        raise WorkloadError(
            f"epochs: {epochs}; expected more than the {known.until} epochs that trial {trial} has already"
        )
    return ExtendTrial(trial, epochs, history_key(known.history), known.until)


def clone(
    record: Record, study: str, trial: int, at: int, changes: Config, epochs: int, every: int = 1
) -> CloneTrial:
    """Return the request for a new trial that follows another one up to an epoch; raise if that is not possible."""
    source = shown_trial(record, study, trial)
    config = config_items(changed(record, study, trial, changes))
    whole("at", at, 1, f"for a trial that differs from the start, use add(…, like={trial})")
    if source.ending in ("stopped", "failed"):
        if at > source.reached:
            raise WorkloadError(
                f"at: epoch {at} of trial {trial}, which is {source.ending}; expected an epoch that it has "
                f"reached, {_reached(source)}"
            )
    elif at > source.until:
        raise WorkloadError(
            f"at: epoch {at} of trial {trial}; expected 1 to {source.until}, the epochs that it has"
        )
    request = CloneTrial(trial, at, config, epochs, every, history_key(source.history))
    check(request)
    return request


def stop_request(record: Record, study: str, trial: int) -> StopTrial:
    """Return the request to stop a trial; raise an error if it has ended."""
    known = shown_trial(record, study, trial)
    if known.ending is not None:
        raise WorkloadError(f"trial {trial}: it is already {known.ending}; expected a running trial")
    return StopTrial(trial, history_key(known.history), known.until)


def retry_requests(record: Record, study: str, trial: int | None = None) -> list[RetryTrial]:
    """Return the requests to train failed trials, or one of them, again; raise an error if there are none."""
    if trial is not None:
        known = shown_trial(record, study, trial)
        if known.ending != "failed":
            state = "running" if known.ending is None else known.ending
            raise WorkloadError(f"trial {trial} of {study!r}: it is {state}; expected a failed trial")
        return [RetryTrial(trial, history_key(known.history), known.retries)]
    found = retry_failed_requests(record, study)
    if not found:
        trials = sum(known.study == study for known in record.trials)
        raise WorkloadError(f"{study}: none of its {trials} trials failed; there is nothing to retry")
    return found


def retry_failed_requests(record: Record, study: str) -> list[RetryTrial]:
    """Return the requests to train all failed trials again; there may be none."""
    own = [known for known in record.trials if known.study == study]
    failed = [(number, known) for number, known in enumerate(own) if known.ending == "failed"]
    return [RetryTrial(number, history_key(known.history), known.retries) for number, known in failed]


def changed(record: Record, study: str, trial: int, changes: Config) -> Config:
    """Return the config that a trial ended with, with some values changed.

    Raise an error for a name that is in no config of the study.
    """
    if not isinstance(changes, Mapping):
        raise WorkloadError(f"config: {changes!r}; expected a mapping of names to values, such as {{'lr': 0.01}}")
    if not changes:
        raise WorkloadError("config: no value is changed; expected at least one name with a value, such as lr=0.01")
    source = shown_trial(record, study, trial)
    own = (known for known in record.trials if known.study == study)
    names = {name: None for known in own for name, _ in known.history[-1].config}
    for name in changes:
        if name not in names:
            raise WorkloadError(
                f"config: no config of {study} has the name {name!r}; expected one of {', '.join(names)}"
            )
    return dict(source.history[-1].config) | dict(changes)


def check(request: UserRequest) -> None:
    """Raise an error if no driver can carry a request out, whatever the study's state is."""
    match request:
        case AddTrial(config, until, every):
            _epochs(until)
            _every(every)
            _plan(config, until)
        case CloneTrial(trial, at, config, until, every):
            whole("trial", trial, 0)
            whole("at", at, 1)
            _epochs(until)
            if until <= at:
                raise WorkloadError(f"epochs: {until}; expected more than the {at} epochs before the branch")
            _every(every)
            _plan(config, until)
        case ExtendTrial(trial, until):
            whole("trial", trial, 0)
            _epochs(until)
        case StopTrial(trial) | RetryTrial(trial):
            whole("trial", trial, 0)
        case _:
            assert_never(request)


def shown_trial(record: Record, study: str, number: int) -> Trial:
    """Return a trial by the number under which its study shows it."""
    whole("trial", number, 0)
    own = [trial for trial in record.trials if trial.study == study]
    if number >= len(own):
        raise HoptreeError(
            f"trial {number} of {study!r}: no such trial; the study has {len(own)} trials, numbered from 0"
        )
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
    whole("every", every, 0, "the number of epochs between reports, or 0 to report only at the end")


def _plan(config: ConfigItems, until: int) -> None:
    """Raise an error if the values of a config cannot be computed up to an epoch."""
    try:
        segments((Phase(0, config_items(dict(config))),), 1, until)
    except (TypeError, ArithmeticError, AssertionError) as error:  # a schedule that Hoptree did not make
        raise WorkloadError(f"config: {error}; expected values, or schedules such as ht.cosine returns") from None


def _reached(trial: Trial) -> str:
    return f"1 to {trial.reached}" if trial.reached else "but it has reached none: add its config as a new trial"
