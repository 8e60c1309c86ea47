"""What tests of the invariants use to break an engine."""

from __future__ import annotations

import pytest

from hoptree.core.errors import InvariantError
from hoptree.core.open_work import OpenWork
from hoptree.core.schedules import Config, multistep
from hoptree.forecast.simulation import simulate
from hoptree.simulator import Cluster, Workload

Patch = pytest.MonkeyPatch
LATER = multistep(0.1, at=[1], gamma=0.1)  # as 0.1, and different after an epoch
WITHIN: Config = {"lr": multistep(0.3, at=[4 / 3], gamma=0.1)}  # different after 4 units of 3 partitions


def broken(number: int) -> pytest.RaisesExc[InvariantError]:
    return pytest.raises(InvariantError, match=rf"^invariant {number} is broken")


def run_workload(order: str = "strict", **more: object) -> None:
    """Train some trials that begin alike; all is well unless the engine was broken."""
    configs = [{"lr": 0.1}, {"lr": LATER}, {"lr": multistep(0.1, at=[1.5], gamma=0.1)}, {"lr": 0.7}]
    workload = Workload(configs=configs, epochs=3, partitions=3, every=1)
    simulate(workload, Cluster(workers=2), order=order, check=True, **more)


def spawn_at_the_start(open_work: OpenWork, node: object, unit: int) -> None:
    if not node.active:  # type: ignore[attr-defined]
        open_work.spawn(node, node.start, None)  # type: ignore[arg-type, attr-defined]
