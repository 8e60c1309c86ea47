"""Somebody else grants a trial more epochs than its search: the search hears what it waits for, and goes on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import hoptree as ht
from hoptree.backends.simulated import SimulatedBackend
from hoptree.core.actions import EndTrial, Report
from hoptree.core.engine import Engine
from hoptree.core.events import Event, TrialExtended
from hoptree.core.invariants import Witness
from hoptree.core.settings import Settings
from hoptree.drive import drive
from hoptree.report.chronicler import Chronicler
from hoptree.search.protocol import Goal, Procedure
from hoptree.search.tuner import Tuner
from hoptree.simulator.cluster import Cluster
from hoptree.simulator.workload import Landscape

PROCEDURES = [
    ht.SuccessiveHalving(trials=9, max_epochs=9),
    ht.SuccessiveHalving(trials=9, max_epochs=9, every=1),
    ht.Hyperband(max_epochs=9),
    ht.PBT(4, 6, 2),
    ht.MedianStopping(trials=6, epochs=4),
    ht.Random(trials=4, epochs=2),
]


class Meddled:
    """A tuner beside which a user extends a trial, after some news."""

    def __init__(self, tuner: Tuner, trial: int, after: int) -> None:
        self.tuner = tuner
        self.trial = trial
        self.left = after

    def start(self) -> Sequence[Event]:
        return self.tuner.start()

    def tell(self, news: Report | EndTrial) -> Sequence[Event]:
        self.left -= 1
        more = [TrialExtended(self.trial, 12)] if not self.left else []
        return [*self.tuner.tell(news), *more]


def endings(procedure: Procedure, trial: int, after: int) -> list[tuple[int, str | None]]:
    engine = Engine(Settings(partitions=2))
    search = procedure.search({"lr": ht.log(0.01, 1.0)}, Goal("loss", maximize=False), 0)
    landscape = Landscape(
        lambda _: 1.0, lambda values, epoch, _: {"loss": float(values.at(0.0)["lr"]) + 1 / (1 + epoch)}
    )
    backend = SimulatedBackend(Cluster(workers=2, replicas=2), 2, landscape)
    chronicler = Chronicler(engine)
    drive(engine, backend, Meddled(Tuner(search), trial, after), [Witness(engine).see, chronicler.see])
    for course in chronicler.chronicle("meddled", "loss", maximize=False).courses:
        told = [report.epoch for report in course.reports]
        assert told == sorted(set(told))  # a report that was made twice, or late, is one, in its place
    return [(known.until, known.ending) for known in engine.trials.values()]


@pytest.mark.parametrize("procedure", PROCEDURES, ids=repr)
@pytest.mark.parametrize("after", [1, 5, 12])
@pytest.mark.parametrize("trial", [0, 2])
def test_a_search_decides_as_if_nobody_had_granted_more(procedure: Procedure, after: int, trial: int) -> None:
    calm = endings(procedure, trial, 0)
    meddled = endings(procedure, trial, after)
    others = [number for number in range(len(calm)) if number != trial]
    assert [meddled[number] for number in others] == [calm[number] for number in others]
    assert meddled[trial][0] in (12, calm[trial][0])  # what had been stopped by then cannot be extended
