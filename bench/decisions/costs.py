"""What knowing costs is worth: stage trees of configs that differ in what a unit takes."""

from __future__ import annotations

from random import Random

from bench.results import record, spread, table
from hoptree.backends.event_loop import drive
from hoptree.backends.simulated import SimulatedBackend
from hoptree.core.engine import Engine
from hoptree.core.events import Event
from hoptree.core.plan import Cost
from hoptree.core.schedules import Config, multistep
from hoptree.core.settings import Settings
from hoptree.estimate import Estimator
from hoptree.search.fixed import Fixed
from hoptree.search.tuner import Tuner
from hoptree.simulator import Cluster, Workload

EPOCHS = 12
PARTITIONS = 4
SEEDS = range(10)
NOISE = 0.1
SIZES = ((16, 4), (16, 8), (32, 8), (64, 8))


class Learning:
    """A backend whose estimator sends new costs to the engine every few units, as a session does."""

    def __init__(self, backend: SimulatedBackend, estimator: Estimator, every: int) -> None:
        self._backend = backend
        self._estimator = estimator
        self._every = every
        self.start, self.submit, self.stop = backend.start, backend.submit, backend.stop

    def wait(self, seconds: float | None = None) -> tuple[float, list[Event]]:
        """Add what was learned to what happened."""
        now, events = self._backend.wait(seconds)
        if self._estimator.units.count % self._every == 0 and (news := self._estimator.news()) is not None:
            events.append(news)
        return now, events


def configs(number: int, seed: int) -> list[Config]:
    """Nets whose units take up to 32 times as long as others', with learning rates that diverge at some epoch."""
    random = Random(seed)
    return [
        {
            "width": random.choice([32, 64, 128, 256]),
            "batch_size": random.choice([16, 32, 64, 128, 256]),
            "lr": multistep(0.1, at=[random.choice([3, 6, 9])], gamma=random.choice([0.1, 0.3])),
        }
        for _ in range(number)
    ]


def run(workload: Workload, workers: int, seed: int, cost: Cost | None, learns: bool) -> float:
    """Return the makespan, with costs that are known, unknown or learned."""
    engine = Engine(Settings(PARTITIONS), cost)
    cluster = Cluster(workers=workers, replicas=workers, noise=NOISE)
    backend = SimulatedBackend(cluster, PARTITIONS, workload.landscape(), seed=seed, record=False)
    estimator = Estimator()
    tuner = Tuner(Fixed(workload.config_list(), EPOCHS), root="costs")
    if not learns:
        return drive(engine, backend, tuner)
    return drive(engine, Learning(backend, estimator, workers), tuner, [estimator.watch])


def main() -> None:
    rows = []
    for number, workers in SIZES:
        ratios: dict[str, list[float]] = {"known": [], "learned": []}
        for seed in SEEDS:
            widths = {str(width): width / 32 for width in (32, 64, 128, 256)}
            batches = {str(size): 1 + 64 / size for size in (16, 32, 64, 128, 256)}
            workload = Workload(
                configs=configs(number, seed),
                epochs=EPOCHS,
                partitions=PARTITIONS,
                factors={"width": widths, "batch_size": batches},
            )
            equal = run(workload, workers, seed, None, learns=False)
            known = run(workload, workers, seed, workload.landscape().seconds, learns=False)
            ratios["known"].append(known / equal)
            ratios["learned"].append(run(workload, workers, seed, None, learns=True) / equal)
        rows.append([f"{number} trials, {workers} workers", *(spread(ratios[name], 3) for name in ratios)])
    text = (
        "## What knowing costs is worth\n\n"
        f"Stage trees of nets whose units take up to 32 times as long as others', {EPOCHS} epochs, {PARTITIONS} "
        f"partitions held by all workers, noise {NOISE:g}. Makespan over that with all units taken as equal, "
        f"{len(SEEDS)} seeds: with costs known from the start, and learned while it runs.\n\n"
        + table(["setting", "known / equal", "learned / equal"], rows)
    )
    record("costs", "python -m bench.decisions costs", text)
