"""Plans of nodes carried out by Ray's own autoscaler: time and cost beside the forecast.

    python -m bench.elastic_ray [--runs 3] [--seconds 1.5]

The cluster is on this machine: its nodes are processes of one CPU that really start, join and are given back. Units
take wall-clock time by waiting, so that a few cores are enough for all nodes. The time is assumed, and is the same
for all configs, so that n nodes finish n times as many units. The price is made up. Everything else is as it would
be elsewhere: the plan comes from ``study.plan``, latencies were measured in an earlier run, and ``study.run`` keeps
to the deadline.
"""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from tests.clusters.scaling import autoscaling_cluster

import hoptree as ht
from bench.results import record, table
from hoptree.core.node_ledger import NodeLedger
from hoptree.forecast.study_plan import StudyPlan
from hoptree.record.cost import Cost
from hoptree.record.opening import open_record
from hoptree.store import Store

ENOUGH = 3  # runs whose figures are written down
ROWS = 512  # of a partition
PARTITIONS = 12  # so that 1, 2, 3 and 4 nodes hold equally many
NODE = ht.Instance("node", devices=1, price=3.6, minimum=30.0, max_count=4)
SEARCH = ht.SuccessiveHalving(12, max_epochs=9)
SLACK = 1.25  # of the time of the fastest plan: the deadline
RESULTS = "python -m bench.elastic_ray --runs {}"


def trainer(seconds: float) -> ht.Functions:
    """Return a trainer by functions whose units wait for so many seconds."""
    import torch

    def input_fn(columns: Any) -> Any:
        return torch.as_tensor(np.array(columns["x"])), torch.as_tensor(np.array(columns["y"]))

    def model_fn(hp: Any) -> Any:
        module = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
        return module, torch.optim.SGD(module.parameters(), lr=hp["lr"])

    def train_fn(data: Any, module: Any, optimizer: Any, _hp: Any) -> dict[str, float]:
        x, y = data
        loss = torch.nn.functional.mse_loss(module(x)[:, 0], y)
        if optimizer is not None:
            loss.backward()
            optimizer.step()
            time.sleep(seconds * len(x) / ROWS)
        return {"loss": loss.item()}

    return ht.Functions(input_fn, model_fn, train_fn)


def dataset(folder: Path) -> ht.Dataset:
    """Return some rows with a smooth target."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(ROWS * PARTITIONS, 4)).astype(np.float32)
    y = np.sin(x.sum(axis=1)).astype(np.float32)
    valid = {"x": x[:64], "y": y[:64]}
    return ht.Dataset.from_arrays(x=x, y=y, valid=valid, partitions=PARTITIONS, to=folder)


def study(folder: Path, name: str, seconds: float, search: Any = SEARCH) -> ht.Study:
    """Return a study whose store is in the folder."""
    space = {"lr": ht.log(1e-3, 1e-1)}
    return ht.Study(
        name,
        trainer=trainer(seconds),
        data=dataset(folder / "data"),
        space=space,
        search=search,
        minimize="loss",
        store=folder / "store",
    )


class Outcome(NamedTuple):
    """A run beside its forecast."""

    deadline: float
    plan: StudyPlan
    cost: Cost
    prints: list[str]
    ledger: NodeLedger

    def row(self, number: int) -> list[str]:
        """Return the figures for the table."""
        plan, first = self.plan, self.cost.forecast
        assert plan.static is not None
        assert first is not None
        time_off = self.cost.seconds / plan.seconds - 1
        money_off = self.cost.money / plan.cost - 1
        return [
            str(number),
            f"{self.deadline:.0f} s",
            f"{plan.seconds:.1f} s ({first.seconds.expected:.1f})",
            f"{self.cost.seconds:.1f} s ({time_off:+.1%})",
            f"{100 * plan.cost:.2f} c ({100 * first.cost.expected:.2f})",
            f"{100 * self.cost.money:.2f} c ({money_off:+.1%})",
            f"{100 * plan.static.cost:.2f} c",
            nodes_over_time(self.ledger),
            str(len(self.ledger.rows.plans)),
        ]


def nodes_over_time(ledger: NodeLedger) -> str:
    """Return how many nodes there were from which second on, as "3 (8 s), 1 (120 s)"."""
    changes = [(use.started, 1) for use in ledger.rows.uses]
    changes += [(use.ended, -1) for use in ledger.rows.uses if use.ended is not None]
    begun = ledger.rows.plans[0].now
    nodes, shown = 0, dict[int, int]()
    for now, change in sorted(changes):
        nodes += change
        shown[round(now - begun)] = nodes
    return ", ".join(f"{count} ({now} s)" for now, count in shown.items())


def run_once(folder: Path, seconds: float, address: str) -> Outcome:
    """Plan a study, run it on the cluster, and return what happened beside what was planned."""
    where = ht.Ray(address=address)
    first = study(folder, "latencies", seconds / 10, ht.Random(4, epochs=1))
    first.run(backend=where, instance=NODE, budget=1.0, quiet=True)
    this = study(folder, "elastic", seconds)
    fastest = this.plan(instance=NODE).front[0]
    deadline = SLACK * fastest.seconds
    plan = this.plan(instance=NODE, deadline=deadline)
    print(plan, flush=True)
    results = this.run(backend=where, instance=NODE, deadline=deadline)
    assert results.cost is not None
    print(results.cost, flush=True)
    facts = ledger(folder)
    for use in facts.rows.uses:
        times = f"{use.waited:.1f} s waited, started {use.started:.1f}, joined {use.joined}, ended {use.ended}"
        print(f"node {use.node[-4:]}: {times}", flush=True)
    return Outcome(deadline, plan, results.cost, [trial.fingerprint for trial in results.trials], facts)


def ledger(folder: Path) -> NodeLedger:
    """Return the facts about the nodes of a run."""
    with Store(folder / "store", create=False) as store:
        known = store.catalog.find("elastic")
        assert known is not None
        return open_record(store, known).state.nodes


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.elastic_ray", description=__doc__)
    parser.add_argument("--runs", type=int, default=ENOUGH)
    parser.add_argument("--seconds", type=float, default=1.5, help="of a unit")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("hoptree").setLevel(logging.INFO)
    outcomes: list[Outcome] = []
    with TemporaryDirectory(prefix="hoptree-elastic-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        local = study(folder / "local", "local", arguments.seconds).run(workers=NODE.max_count, quiet=True)
        expected = [trial.fingerprint for trial in local.trials]
        with autoscaling_cluster({"node": {"resources": {"CPU": 1}}}) as address:
            for number in range(arguments.runs):  # each in a store of its own: else they would share states
                outcomes.append(run_once(folder / str(number), arguments.seconds, address))
                assert outcomes[-1].prints == expected, "other bits than on one machine"
    _report(outcomes, arguments.runs, arguments.seconds)


def _report(outcomes: list[Outcome], runs: int, seconds: float) -> None:
    columns = [
        "run", "deadline", "forecast", "time", "forecast", "cost", "best fixed cluster", "nodes (from)", "plans",
    ]  # fmt: skip
    rows = [each.row(number + 1) for number, each in enumerate(outcomes)]
    text = (
        f"Successive halving ({', '.join(f'{rung.trials} to epoch {rung.epochs}' for rung in SEARCH.rungs)}) on up "
        f"to {NODE.max_count} nodes of one CPU, started and given back by Ray's autoscaler on this machine. Units "
        f"take {seconds:g} s by waiting, which is assumed, as is the price (${NODE.price} per hour, at least "
        f"{NODE.minimum:.0f} s are paid). Times are from the first plan to the last event. The forecast is that of "
        "`study.plan`, in brackets that of the run when it began. All fingerprints equal those of a run on local "
        "processes.\n\n" + table(columns, rows)
    )
    if runs >= ENOUGH:
        record("elastic-ray", RESULTS.format(runs), text)
    else:
        print(text)


if __name__ == "__main__":
    main()
