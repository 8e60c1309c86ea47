"""Which configs are tried before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hoptree.core.events import Event, TrialAsked
from hoptree.core.lineage import beginning
from hoptree.core.plan import Trial
from hoptree.core.schedules import Config, Scalar

_TRIED = 12  # of each kind of configs, of which one has to pass rehearsal


def to_rehearse(
    trials: Sequence[Trial], owed: Sequence[Event], examples: Callable[[], Sequence[Config]]
) -> list[dict[str, Scalar]]:
    """Return the values of which some must pass rehearsal; nothing if nothing begins.

    Those that begin come first. That some of them fail is data, so what has been trained before, and what the
    searches may still ask for, has its chance too: only what no config survives is a mistake in all of them.
    """
    begin = [dict(trial.history[0].config) for trial in trials if trial.ending is None]
    begin += [dict(event.config) for event in owed if isinstance(event, TrialAsked)]
    if not begin:
        return []
    before = [dict(trial.history[0].config) for trial in trials if trial.reached]
    found: list[dict[str, Scalar]] = []
    for config in (config for kind in (begin, before, examples()) for config in _spread(kind)):
        if (values := beginning(config)) not in found:
            found.append(values)
    return found


def to_change(trials: Sequence[Trial], owed: Sequence[Event]) -> list[Config]:
    """Return, of the configs that begin, one for each set of names that change while it trains."""
    from hoptree.trainers.changes import changing

    begin = [dict(trial.history[0].config) for trial in trials if trial.ending is None and not trial.reached]
    return changing([*begin, *(dict(event.config) for event in owed if isinstance(event, TrialAsked))])


def _spread(configs: Sequence[Config]) -> Sequence[Config]:
    """Return some from all over, if there are many."""
    return configs[:: max(1, len(configs) // _TRIED)][:_TRIED]
