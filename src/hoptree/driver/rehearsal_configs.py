"""Which configs are tried before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from hoptree.backends.rehearsals import RehearsalConfig
from hoptree.core.events import Event, TrialAsked
from hoptree.core.lineage import beginning, history, segments
from hoptree.core.plan import Trial
from hoptree.core.schedules import Config

_TRIED = 12  # of each kind of configs, of which one has to pass rehearsal
_Granted: TypeAlias = tuple[Config, int]  # a config, and the epoch until which it is to be trained; 0: nobody knows


def to_rehearse(
    trials: Sequence[Trial], owed: Sequence[Event], examples: Callable[[], Sequence[Config]]
) -> list[RehearsalConfig]:
    """Return the values of which some must pass rehearsal; nothing if nothing begins.

    Those that begin come first. That some of them fail is data, so what has been trained before, and what the
    searches may still ask for, has its chance too: only what no config survives is a mistake in all of them.
    """
    begin: list[_Granted] = [
        (dict(trial.history[0].config), trial.until) for trial in trials if trial.ending is None
    ]
    begin += [(dict(event.config), event.until) for event in owed if isinstance(event, TrialAsked)]
    if not begin:
        return []
    before: list[_Granted] = [(dict(trial.history[0].config), trial.reached) for trial in trials if trial.reached]
    others: list[_Granted] = [(config, 0) for config in examples()]
    found: dict[str, RehearsalConfig] = {}
    for granted in (granted for kind in (begin, before, others) for granted in _spread(kind)):
        config = _rehearsal_config(*granted)
        values = repr(sorted(config.values.items()))
        if values not in found or (config.later and not found[values].later):
            found[values] = config
    return list(found.values())


def to_change(trials: Sequence[Trial], owed: Sequence[Event]) -> list[Config]:
    """Return, of the configs that begin, one for each set of names that change while it trains."""
    from hoptree.trainers.changes import changing

    begin = [dict(trial.history[0].config) for trial in trials if trial.ending is None and not trial.reached]
    return changing([*begin, *(dict(event.config) for event in owed if isinstance(event, TrialAsked))])


def _rehearsal_config(config: Config, until: int) -> RehearsalConfig:
    """Return the values that a config begins with, and those that it comes to in its last epoch."""
    values = beginning(config)
    if not until:
        return RehearsalConfig(values)
    last = segments(history(config), partitions=2, units=2 * until)[-1].values.at(until - 0.5)
    return RehearsalConfig(values, last if last != values else {})


def _spread(configs: Sequence[_Granted]) -> Sequence[_Granted]:
    """Return some from all over, if there are many."""
    return configs[:: max(1, len(configs) // _TRIED)][:_TRIED]
