"""Tables 2 to 4 of RubberBand in simulation."""

from __future__ import annotations

import msgspec

from bench.elastic.policies import POLICIES, Case, compare, nodes
from bench.elastic.workloads import BERT, EPOCH_SECONDS, RESNET101, RESNET152, halving, job, p3, table_2
from bench.results import record, table
from hoptree.elastic.allocation import AllocationPlan
from hoptree.elastic.planner import Planner

PAPER_2 = {  # minutes: costs and times of the paper's simulation
    20: {"static": ("19:24", 34.00), "naive elastic": ("14:39", 27.50), "RubberBand": ("18:56", 15.68)},
    30: {"static": ("29:09", 17.73), "naive elastic": ("26:25", 19.83), "RubberBand": ("29:14", 14.70)},
    40: {"static": ("36:53", 14.99), "naive elastic": ("26:25", 19.83), "RubberBand": ("37:08", 14.68)},
}
PAPER_4 = {"ResNet-101": (33.21, 15.67), "ResNet-152": (35.53, 26.54), "BERT": (36.43, 29.17)}
CURVES = {
    "nearly linear": {1: 1.0, 2: 1.98, 4: 3.9, 8: 7.6, 16: 14.5},
    "good": BERT,
    "as assumed": RESNET101,
    "poor": {1: 1.0, 2: 1.6, 4: 2.5, 8: 3.5, 16: 4.3},
}
MODELS = {  # seconds of an epoch on one GPU, and the scaling: assumptions
    "ResNet-101": (EPOCH_SECONDS, RESNET101),
    "ResNet-152": (120.0, RESNET152),
    "BERT": (140.0, BERT),
}


def main() -> None:
    cases = {minutes: compare(f"{minutes} min", *table_2(), minutes * 60.0) for minutes in PAPER_2}
    text = "\n\n".join([_table_2(cases), _other_curves(), _table_3(cases[20]), _table_4()])
    record("elastic-tables", "python -m bench.elastic tables", text)


def _table_2(cases: dict[int, Case]) -> str:
    rows = []
    for minutes, case in cases.items():
        for policy in POLICIES:
            plan = case.plans[policy]
            there = PAPER_2[minutes].get("RubberBand" if policy == "whole instances" else policy, ("", ""))
            time, cost = (
                ("-", "-") if plan is None else (_clock(plan.seconds.expected), f"{plan.cost.expected:.2f}")
            )
            rows.append([minutes, policy, time, cost, "" if plan is None else nodes(plan), *there])
        own = _hopping(minutes * 60.0)
        figures = [_clock(own.seconds.expected), f"{own.cost.expected:.2f}", nodes(own), "", ""]
        rows.append([minutes, "ours, as Hoptree runs it", *figures])
    columns = ["minutes", "policy", "time", "dollars", "instances", "paper: time", "paper: dollars"]
    return f"""**Table 2: money at a deadline, in simulation.** ResNet-101 on CIFAR-10, SHA(32, 1, 50, 3),
p3.8xlarge at 12.24 dollars per hour, 15 s to provision and 15 s to start. Scaling is an assumption:
{_scaling(RESNET101)}, and {EPOCH_SECONDS:.0f} s for an epoch on one GPU.
"Algorithm 2" is as printed: its steps are GPUs, and it ends where the best step saves nothing, as most steps below
a whole instance do. "Whole instances" is the same search with steps of instances, and stands beside the paper's
RubberBand. "As Hoptree runs it": models hop, so trials share GPUs evenly, and nodes are requested before the stage
that needs them. At 20 minutes static costs {cases[20].gain} times as much as ours.

{table(columns, rows)}"""


def _other_curves() -> str:
    rows = []
    for name, curve in CURVES.items():
        work = job(halving(32, 1, 50, 3), EPOCH_SECONDS, curve)
        instance = p3(provision=15.0, start=15.0)
        found = [compare(name, work, instance, minutes * 60.0) for minutes in (15, *PAPER_2)]
        rows.append([f"{name}: {_scaling(curve)}", *(case.gain for case in found)])
    return f"""**How much that depends on the assumed scaling:** static over ours, by deadline
("-": static cannot meet it). Where trials scale well, there is little to save, as in the paper.

{table(["scaling", "15 min", "20 min", "30 min", "40 min"], rows)}"""


def _table_3(case: Case) -> str:
    plan = case.plans["ours"]
    assert plan is not None
    stages = plan.allocations[0].stages
    epochs = ["0-1", "1-4", "4-13", "13-50"]
    rows = [
        [epoch, stage.trials, stage.devices_per_trial, stage.nodes, paper]
        for epoch, stage, paper in zip(epochs, stages, (8, 5, 4, 2), strict=True)
    ]
    columns = ["epochs", "trials", "GPUs per trial", "instances", "paper: instances"]
    return f"**Table 3: our plan for 20 minutes.**\n\n{table(columns, rows)}"


def _table_4() -> str:
    rows = []
    for name, (seconds, scaling) in MODELS.items():
        work = job(halving(32, 1, 50, 3), seconds, scaling)
        case = compare(name, work, p3(provision=15.0, start=15.0), 1200.0)
        static, ours = PAPER_4[name]
        rows.append([name, *(case.cell(policy) for policy in POLICIES), case.gain, f"{static / ours:.2f}"])
    assumed = "; ".join(f"{name} {seconds:.0f} s, {_scaling(curve)}" for name, (seconds, curve) in MODELS.items())
    return f"""**Table 4: other models.** SHA(32, 1, 50, 3), 20 minutes, dollars. Epoch times on one GPU and
scaling are assumptions ({assumed}).

{table(["model", *POLICIES, "static / ours", "paper: static / RubberBand"], rows)}"""


def _hopping(deadline: float) -> AllocationPlan:
    work, instance = table_2()
    return Planner([msgspec.structs.replace(work, divisible=True)], instance).cheapest(deadline)


def _clock(seconds: float) -> str:
    return f"{seconds // 60:.0f}:{seconds % 60:02.0f}"


def _scaling(curve: dict[int, float]) -> str:
    return ", ".join(f"{speed:g} times as fast on {width}" for width, speed in curve.items() if width > 1)
