"""A forecast: what a study would ask for, train and take, before anything is spent.

The same search and the same engine run through the same loop, against a simulated backend. What a unit takes is
measured in a pilot of a few batches for some of the configs; where reports decide, a made-up landscape stands in
for them, so what an adaptive search would ask for is an example, and what a fixed one asks for is exact.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, final

import msgspec

from hoptree.backends.simulated import SimulatedBackend
from hoptree.core.engine import Engine
from hoptree.core.events import Event, Metrics, TrialAsked
from hoptree.core.lineage import Values, history, seed_of, segments
from hoptree.core.schedules import Scalar
from hoptree.drive import Asks, drive
from hoptree.report.tables import duration, size, text_table
from hoptree.results import Savings
from hoptree.simulator.cluster import Cluster
from hoptree.simulator.workload import Landscape

if TYPE_CHECKING:
    from hoptree.core.settings import Settings
    from hoptree.data import Dataset
    from hoptree.trainers.base import Trainer

_PILOTS = 6  # configs that are tried
_BATCHES = 3


class Pilot(NamedTuple):
    """What was measured for one config."""

    unit: float  # seconds
    evaluation: float
    state: int  # bytes


@final
class Forecast(msgspec.Struct, frozen=True):
    """What a study is expected to come to; ``seconds`` lies from ``least`` to ``most`` if the pilot is right."""

    trials: int
    epochs_asked: float
    epochs_trained: float
    merge_rate: float
    seconds: float
    least: float
    most: float
    cpu_seconds: float
    memory: int
    disk: int
    workers: int

    def __str__(self) -> str:
        rows = [
            ("trials", f"{self.trials:,}"),
            ("epochs asked", f"{self.epochs_asked:g}"),
            ("epochs to train", f"{self.epochs_trained:g} (merge rate {self.merge_rate:.2f})"),
            ("time", f"{duration(self.seconds)} ({duration(self.least)} to {duration(self.most)})"),
            ("CPU time", f"{duration(self.cpu_seconds)} on {self.workers} workers"),
            ("memory for states", size(self.memory)),
            ("disk for states", size(self.disk)),
        ]
        return text_table(["", "expected"], rows)


def forecast(asks: Asks, settings: Settings, pilots: Sequence[Pilot], *, goal: str, workers: int) -> Forecast:
    """Run a study's searches against a simulated cluster, and return what that comes to."""
    unit = statistics.mean(pilot.unit for pilot in pilots)
    evaluation = statistics.mean(pilot.evaluation for pilot in pilots)
    state = max(pilot.state for pilot in pilots)

    def metrics(_values: Values, epoch: int, key: str) -> Metrics:
        level = (seed_of(key, "forecast") % 1000) / 1000
        return {goal: level + 1.0 / (1 + epoch)}

    engine = Engine(settings, lambda _values: unit)
    everything = Cluster(workers=workers, replicas=min(workers, settings.partitions))
    backend = SimulatedBackend(
        everything,
        settings.partitions,
        Landscape(lambda _values: unit, metrics),
        state_bytes=0.0,
        evaluation_seconds=evaluation,
        record=False,
    )
    makespan = drive(engine, backend, asks)
    work = Savings.count(engine, backend.units, 0)
    least, most = (min(p.unit for p in pilots) / unit, max(p.unit for p in pilots) / unit)
    kept = sum(trial.ending == "complete" for trial in engine.trials.values())
    return Forecast(
        trials=len(engine.trials),
        epochs_asked=work.epochs_asked,
        epochs_trained=work.epochs_trained,
        merge_rate=work.merge_rate,
        seconds=makespan,
        least=makespan * least,
        most=makespan * most,
        cpu_seconds=backend.busy_seconds,
        memory=state * (2 * workers + len(engine.plan.nodes)),
        disk=state * kept,
        workers=workers,
    )


def pilot(trainer: Trainer, data: Dataset, values: dict[str, Scalar]) -> Pilot:
    """Train and evaluate a few batches of a config in this process, and extrapolate to a unit."""
    from hoptree.trainers.base import UnitSpec

    columns, valid = data.partition(0), data.valid()
    rows = len(next(iter(columns.values())))
    few = min(rows, _BATCHES * int(values.get("batch_size") or 64))
    model = trainer.build(values, 0)
    whole = segments(history(dict(values)), partitions=1, units=1)[0].values
    spec = UnitSpec(whole, unit=0, partitions=1, partition=0, seed=0, shuffle_seed=0)
    some = {name: column[:few] for name, column in columns.items()}
    trainer.train(model, some, spec)  # once without the clock: memory and kernels warm up
    began = time.perf_counter()
    trainer.train(model, some, spec)
    unit = (time.perf_counter() - began) * rows / few
    evaluation = 0.0
    if valid is not None:
        seen = min(len(next(iter(valid.values()))), few)
        began = time.perf_counter()
        trainer.evaluate(model, {name: column[:seen] for name, column in valid.items()}, values)
        evaluation = (time.perf_counter() - began) * len(next(iter(valid.values()))) / seen
    arrays: dict[str, Any] = trainer.dump(model).arrays
    return Pilot(unit, evaluation, sum(array.nbytes for array in arrays.values()))


def some_configs(events: Sequence[Event]) -> list[dict[str, Scalar]]:
    """Return the values with which some of the first trials begin, spread over all of them."""
    asked = [event for event in events if isinstance(event, TrialAsked)]
    step = max(1, -(-len(asked) // _PILOTS))
    return [
        segments(history(dict(event.config)), partitions=1, units=1)[0].values.at(0.0) for event in asked[::step]
    ]
