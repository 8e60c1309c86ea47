"""Deadlines and costs of simulated runs whose nodes come and go: planned again after every stage, and only once.

    python -m bench.elastic_runs [RUNS]

A search by successive halving on nodes of one device. Units differ by 20 %, some are stragglers, nodes take
differently long to come, and one node is lost at a random time. Each run has a deadline of its own. The plan
promises to meet it in at least 95 % of all cases. All figures are simulated, by the real engine and controller.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from bench.results import record, table
from hoptree.core.saving import SavePolicy
from hoptree.elastic.controller import reserve_for
from hoptree.elastic.errors import DeadlineError
from hoptree.elastic.instance import Instance
from hoptree.forecast.elastic_simulation import AllocationRun, AllocationTerms, simulate_allocation
from hoptree.search import SuccessiveHalving
from hoptree.search.value_kinds import log
from hoptree.simulator import Cluster, Workload
from hoptree.simulator.elastic_nodes import ElasticNodes
from hoptree.simulator.faults import Fault, NodeLoss

RUNS = 1_000
OTHERS = 10  # the other cases have so many times fewer runs
RISK = 0.05
SEARCH = SuccessiveHalving(64, max_epochs=8, min_epochs=2, factor=2)
SPACE = {"lr": log(1e-4, 1e-1)}
WORKLOAD = Workload(partitions=3, seconds=30.0)
SPOT = Instance("p3.2xlarge", devices=1, price=3.06, provision=30.0, start=20.0, spot=True)
NODES = ElasticNodes(devices=1, provision=30.0, start=20.0, spread=0.3)
ROUGH: dict[str, Any] = {"noise": 0.2, "stragglers": 0.02, "straggling": 3.0}
AT_RISK = 90.0  # seconds of training that a lost node may cost a trial: states are saved after every epoch
LEAST, MOST = 1_500.0, 4_000.0  # deadlines in seconds


class Case(NamedTuple):
    """What happens besides the noise of units."""

    name: str
    lost: bool = True
    reserve: bool = False
    misjudged: float = 1.0


CASES = (
    Case("a node is lost"),
    Case("a node is lost, with a reserve for it", reserve=True),
    Case("no node is lost", lost=False),
    Case("units take 15 % longer than expected, a node is lost", misjudged=1 / 1.15),
    Case("units take 15 % less than expected, a node is lost", misjudged=1.15),
)


class Outcome(NamedTuple):
    """One run."""

    met: bool
    late: float
    cost: float
    forecast: float
    plans: int
    lost: bool
    seconds: float = 0.0  # of the processor


def run(case: Case, seed: int, *, again: bool) -> Outcome | None:
    """Return what one run took; None if no plan can meet its deadline."""
    begun = time.process_time()
    draw = random.Random(f"elastic runs {seed}")
    deadline = draw.uniform(LEAST, MOST)
    faults: list[Fault] = [NodeLoss(at=draw.uniform(0.0, 0.9 * deadline))] if case.lost else []
    terms = AllocationTerms(
        instance=SPOT,
        deadline=deadline,
        again=again,
        risk=RISK,
        saving=SavePolicy(every=1),
        reserve=reserve_for(SPOT, AT_RISK) if case.reserve else 0.0,
        misjudged=case.misjudged,
    )
    cluster = Cluster(elastic=NODES, faults=faults, **ROUGH)
    try:
        found: AllocationRun = simulate_allocation(WORKLOAD, SEARCH, SPACE, cluster, terms, seed=seed)
    except DeadlineError:
        return None
    ended = {trial.ending for trial in found.engine.trials.values()}
    assert ended <= {"complete", "stopped"}, ended
    lost = any(use.lost for use in found.engine.state.nodes.rows.uses)
    forecast = found.forecast.cost.expected
    late = max(0.0, found.seconds - deadline) / deadline
    used = time.process_time() - begun
    return Outcome(found.seconds <= deadline, late, found.cost, forecast, len(found.plans), lost, used)


def rows(case: Case, runs: int) -> tuple[list[list[object]], float]:
    """Return the rows of a case, planned again and planned once, and the processor time."""
    found: list[list[object]] = []
    seconds = 0.0
    for again in (True, False):
        with ProcessPoolExecutor(2) as pool:
            done = list(pool.map(partial(run, case, again=again), range(runs), chunksize=10))
        outcomes = [each for each in done if each is not None]
        seconds += sum(each.seconds for each in outcomes)
        late = [each.late for each in outcomes if not each.met]
        ratios = sorted(each.cost / each.forecast for each in outcomes)
        low, high = ratios[len(ratios) // 20], ratios[-1 - len(ratios) // 20]
        found.append(
            [
                case.name if again else "",
                "after every stage" if again else "once",
                f"{100 * statistics.mean(each.met for each in outcomes):.1f} %",
                f"{100 * statistics.mean(late):.1f} %" if late else "none",
                f"{statistics.mean(ratios):.3f} ({low:.2f} to {high:.2f})",
                f"{statistics.mean(each.cost for each in outcomes):.2f}",
                f"{statistics.mean(each.plans for each in outcomes):.1f}",
                f"{len(outcomes):,} ({sum(each.lost for each in outcomes):,})",
            ]
        )
        print(found[-1], flush=True)
    return found, seconds


def main(runs: int) -> None:
    """Run all cases, and record them."""
    done = [rows(case, runs if case is CASES[0] else runs // OTHERS) for case in CASES]
    found = [row for each, _ in done for row in each]
    seconds = sum(used for _, used in done)
    columns = [
        "",
        "planned",
        "deadline met",
        "late by",
        "cost / forecast (5 to 95 %)",
        "cost, dollars",
        "plans",
        "runs",
    ]
    rungs = ", ".join(f"{rung.trials} trials to epoch {rung.epochs}" for rung in SEARCH.rungs)
    text = (
        "## Deadlines of simulated runs on nodes that come and go\n\n"
        f"Successive halving ({rungs}; 3 units of 30 s per epoch) on spot instances of one device at 3.06 dollars "
        "per hour (minimum 60 s, 30 s to provision, 20 s to start, both with a spread of 30 %). Units differ by "
        "20 %, and 2 % of them take three times as long. Deadlines are drawn from "
        f"{LEAST:,.0f} to {MOST:,.0f} s. The node that is lost is any that runs at a random time; states are saved "
        "after every epoch. Plans promise to meet the deadline in 95 % of all cases; a reserve is what they keep "
        "for the loss of a node. What a unit takes is measured while it runs. In brackets: runs in which a node "
        "was lost; deadlines that no plan meets are left out. All simulated. "
        f"{seconds:,.0f} seconds of processor time.\n\n"
    )
    record("elastic-runs", "python -m bench.elastic_runs", text + table(columns, found))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)
