"""A simulated workload: the configs, their epochs, and the cost of their units."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from hoptree.core.errors import WorkloadError
from hoptree.core.events import Metrics
from hoptree.core.keys import fraction
from hoptree.core.lineage import Values, config_items
from hoptree.core.schedules import Config, Value


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """The configs to train and their cost.

    ``configs`` is a list, or a number of configs that share nothing. ``seconds`` is the time of one unit on a
    worker of speed 1: one number, or one for each of the numbered configs. ``factors`` are multipliers for certain
    values: ``{"batch_size": {"32": 2.0}}``.
    """

    configs: int | list[dict[str, Value]] = 8
    epochs: int = 1
    partitions: int = 8
    every: int = 0
    share: bool = True
    barrier: bool = False
    seconds: float | list[float] = 1.0
    factors: dict[str, dict[str, float]] = {}
    evaluation_seconds: float = 0.0
    state_bytes: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.configs, int | list):
            raise WorkloadError(f"configs: {self.configs!r}; expected a number or a list of configs")
        if isinstance(self.configs, int):
            if self.configs < 1:
                raise WorkloadError(f"configs: {self.configs}; expected at least one")
        elif not self.configs:
            raise WorkloadError("configs: an empty list; expected at least one config")
        else:
            for index, config in enumerate(self.configs):
                try:
                    config_items(config)
                except WorkloadError as error:
                    raise WorkloadError(f"configs[{index}]: {error}") from None
        _at_least("epochs", self.epochs, 1)
        _at_least("partitions", self.partitions, 1)
        _at_least("every", self.every, 0)
        times = self.seconds if isinstance(self.seconds, list) else [self.seconds]
        if isinstance(self.seconds, list) and not isinstance(self.configs, int):
            raise WorkloadError("seconds: a list of times for configs that may share; use factors by value")
        if isinstance(self.seconds, list) and len(times) != self.size:
            raise WorkloadError(f"seconds: {len(times)} times for {self.size} configs; expected one for each")
        for name, table in self.factors.items():
            for value, factor in table.items():
                _time(f"factors[{name!r}][{value!r}]", factor)
        for index, time in enumerate(times):
            _time(f"seconds[{index}]" if isinstance(self.seconds, list) else "seconds", time)
        _time("evaluation_seconds", self.evaluation_seconds)
        _time("state_bytes", self.state_bytes)
        if self.barrier and not self.every:
            raise WorkloadError("barrier: a barrier needs reports to wait at; set every to a number of epochs")

    @property
    def size(self) -> int:
        """The number of configs."""
        return self.configs if isinstance(self.configs, int) else len(self.configs)

    def landscape(self) -> Landscape:
        """Return the costs of this workload, and a loss that decreases towards a level of each lineage."""
        return Landscape(self._seconds_of, _loss)

    def _seconds_of(self, values: Values) -> float:
        if not self.factors and not isinstance(self.seconds, list):
            return self.seconds
        at = values.constants()
        seconds = self.seconds
        if isinstance(seconds, list):
            index = at["config"]
            assert isinstance(index, int)
            seconds = seconds[index]
        for name, table in self.factors.items():
            seconds *= table.get(str(at.get(name)), 1.0)
        return seconds

    def config_list(self) -> list[Config]:
        """Return the configs; generate them if only their number was given."""
        if isinstance(self.configs, int):
            return [{"config": index} for index in range(self.configs)]
        return list(self.configs)


class Landscape(msgspec.Struct, frozen=True):
    """The costs and the metrics of simulated training: functions of a unit's values and the trained epochs.

    ``evaluation`` is the time to compute metrics; None if it is the same for all values.
    """

    seconds: Callable[[Values], float]
    metrics: Callable[[Values, int, str], Metrics]
    evaluation: Callable[[Values], float] | None = None


def _loss(_values: Values, epoch: int, key: str) -> Metrics:
    return {"loss": fraction("simulated loss", key) + 1.0 / (1 + epoch)}


def _at_least(field: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise WorkloadError(f"{field}: {value!r}; expected a whole number")
    if value < least:
        raise WorkloadError(f"{field}: {value}; expected at least {least}")


def _time(field: str, value: float) -> None:
    if not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
        raise WorkloadError(f"{field}: {value}; expected a finite number, 0 or more")
