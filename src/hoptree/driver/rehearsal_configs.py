"""Which configs are rehearsed before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from hoptree.backends.rehearsals import RehearsalConfig
from hoptree.core.events import Event, TrialAsked, TrialBranched, TrialExtended, TrialRetried
from hoptree.core.lineage import beginning, history, segments
from hoptree.core.plan import Trial
from hoptree.core.schedules import Config

_TRIED = 12  # configs of each kind that are rehearsed at most
_Granted: TypeAlias = tuple[Config, int]  # a config, and the last epoch that it is trained for; 0: unknown


def to_rehearse(
    trials: Sequence[Trial], pending: Sequence[Event], examples: Callable[[], Sequence[Config]]
) -> list[RehearsalConfig]:
    """Return the configs of which at least one must pass rehearsal; none if no trial starts.

    Configs of trials that start or go on come first; the latter since a probe shows whether their states may be
    trained further. A config that fails is a result and not yet a mistake, so configs that were trained, and that
    the searches may still ask for, follow: only if no config at all can be trained is the run refused.
    """
    by_number = {trial.number: trial for trial in trials}
    starting: list[_Granted] = [
        (dict(trial.history[0].config), trial.until) for trial in trials if trial.ending is None
    ]
    starting += [granted for event in pending for granted in _granted(event, by_number)]
    if not starting:
        return []
    trained: list[_Granted] = [(dict(trial.history[0].config), trial.reached) for trial in trials if trial.reached]
    others: list[_Granted] = [(config, 0) for config in examples()]
    found: dict[str, RehearsalConfig] = {}
    for granted in (granted for kind in (starting, trained, others) for granted in _spread(kind)):
        config = _rehearsal_config(*granted)
        values = repr(sorted(config.values.items()))
        if values not in found or (config.later and not found[values].later):
            found[values] = config
    return list(found.values())


def to_change(trials: Sequence[Trial], pending: Sequence[Event]) -> list[Config]:
    """Return, of the configs that start, one for each set of names whose values change during training."""
    from hoptree.trainers.changes import changing

    starting = [dict(trial.history[0].config) for trial in trials if trial.ending is None and not trial.reached]
    return changing([*starting, *(dict(event.config) for event in pending if isinstance(event, TrialAsked))])


def _granted(event: Event, trials: Mapping[int, Trial]) -> list[_Granted]:
    """Return what an event that was not applied yet trains: new trials, and trials that have ended and go on."""
    match event:
        case TrialAsked() | TrialBranched():
            return [(dict(event.config), event.until)]
        case TrialExtended(number, until) if number in trials:
            return [(dict(trials[number].history[0].config), until)]
        case TrialRetried(number) if number in trials:
            return [(dict(trials[number].history[0].config), trials[number].until)]
        case _:
            return []


def _rehearsal_config(config: Config, until: int) -> RehearsalConfig:
    """Return the values that a config starts with, and those of its last epoch if they differ."""
    values = beginning(config)
    if not until:
        return RehearsalConfig(values)
    last = segments(history(config), partitions=2, units=2 * until)[-1].values.at(until - 0.5)
    return RehearsalConfig(values, last if last != values else {})


def _spread(configs: Sequence[_Granted]) -> Sequence[_Granted]:
    """Return at most ``_TRIED`` configs, spread evenly over all."""
    return configs[:: max(1, len(configs) // _TRIED)][:_TRIED]
