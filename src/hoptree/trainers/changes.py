"""Check, before training, that schedules change only values that a built model can follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from hoptree.core.lineage import beginning
from hoptree.core.schedules import Config, Scalar, as_schedule
from hoptree.trainers.base import Trainer
from hoptree.trainers.errors import TrainerError

_CHANGES = 4  # number of changes per config that are checked


def changing(configs: Sequence[Config]) -> list[Config]:
    """Return one config for each set of names whose values change.

    >>> from hoptree.core.schedules import multistep
    >>> steps = multistep(8, at=[4], gamma=2)
    >>> len(changing([{"width": 8}, {"width": steps}, {"width": steps, "lr": 0.1}]))
    1
    """
    found: dict[frozenset[str], Config] = {}
    for config in configs:
        names = frozenset(name for name, value in config.items() if len(_starts(config, name)) > 1)
        if names:
            found.setdefault(names, config)
    return list(found.values())


def change_error(trainer: Trainer, configs: Sequence[Config]) -> str:
    """Return why a value cannot change as one of the configs requires; empty if all can.

    Skip a config for which no model can be built: that error is reported elsewhere.
    """
    for config in configs:
        try:
            model = trainer.build(beginning(config), 0)
        except Exception:  # noqa: S112 as above
            continue
        for epoch, names, values in _changes(config):
            try:
                trainer.check_values(model, values)
            except TrainerError as error:
                return f"{', '.join(names)}: cannot change at epoch {epoch:g}:\n{error}"
    return ""


def _changes(config: Config) -> list[tuple[float, list[str], Mapping[str, Scalar]]]:
    """Return the epochs at which values change, with the changed names and all values at that time."""
    starts = {name: _starts(config, name) for name in config}
    found: list[tuple[float, list[str], Mapping[str, Scalar]]] = []
    for epoch in sorted({start for times in starts.values() for start in times[1:]})[:_CHANGES]:
        names = sorted(name for name, times in starts.items() if epoch in times[1:])
        found.append((epoch, names, {name: as_schedule(value)(epoch) for name, value in config.items()}))
    return found


def _starts(config: Config, name: str) -> list[float]:
    """Return the start of each piece of a value; a piece that is not constant changes right after its start."""
    times: list[float] = []
    for piece in islice(as_schedule(config[name]).pieces(), _CHANGES):
        times.append(piece.start)
        if piece.form.kind != "constant":
            times.append(piece.start + 0.25)
    return sorted({0.0, *times})
