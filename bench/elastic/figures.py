"""Figures 9 to 12 of RubberBand in simulation: stragglers, the price of data, the number of trials, start-up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.elastic.policies import POLICIES, Case, compare, nodes
from bench.elastic.workloads import RESNET50_512, figure_12, halving, job, p3
from bench.results import record, table
from hoptree.elastic.job import Job
from hoptree.elastic.promotion import early_promotion

PICTURES = Path(__file__).parents[1] / "pictures"
SPREADS = (0, 1, 2, 4, 6, 8, 10)
DATA = {"CIFAR-10, 0.15 GB": 0.15, "ImageNet, 150 GB": 150.0}
DATA_PRICES = (0.0, 0.01, 0.04, 0.16)
TRIALS = (16, 32, 64, 128, 256, 512)
STARTS = (1, 10, 100)
MINUTES = (90, 100, 110, 120, 140, 160)
TIGHT, PAPER = 600.0, 1200.0
"""Deadlines: the paper names that of figure 11 only."""
BILLINGS = {"instance": False, "function": True}


def main() -> None:
    parts = [_stragglers(), _data(), _trials(), _starts()]
    parts.append(_promotion())
    record("elastic-figures", "python -m bench.elastic figures", "\n\n".join(parts))


def resnet50(trials: int = 64, *, spread: float = 0.0, data_gb: float = 0.0) -> Job:
    """Return SHA(trials, 4, 508) of ResNet-50 with batches of 512."""
    return job(halving(trials, 4, 508), 4.0, RESNET50_512, spread=spread, data_gb=data_gb)


def stragglers() -> dict[str, list[Case]]:
    """Return figure 9."""
    return {
        billing: [compare(f"{each}", resnet50(spread=each), p3(function=function), TIGHT) for each in SPREADS]
        for billing, function in BILLINGS.items()
    }


def data_prices() -> dict[str, list[Case]]:
    """Return figure 10."""
    return {
        name: [compare(f"{each}", resnet50(data_gb=size), p3(data_price=each), TIGHT) for each in DATA_PRICES]
        for name, size in DATA.items()
    }


def sizes() -> dict[str, list[Case]]:
    """Return figure 11."""
    return {
        billing: [compare(f"{each}", resnet50(each), p3(function=function), PAPER) for each in TRIALS]
        for billing, function in BILLINGS.items()
    }


def starts() -> dict[str, list[Case]]:
    """Return figure 12."""
    return {
        f"{start} s": [compare(f"{minutes}", *figure_12(start), minutes * 60.0) for minutes in MINUTES]
        for start in STARTS
    }


def _stragglers() -> str:
    return _part(
        "9",
        "stragglers",
        stragglers(),
        ("billing", "standard deviation of an iteration, s"),
        "SHA(64, 4, 508) of ResNet-50, batches of 512, iterations of 4 s on one GPU, no start-up, 10 minutes (an "
        "assumption: the paper names no deadline). Iterations differ independently, so that long stages differ "
        "less; in the paper, billing per instance becomes ten times as dear.",
    )


def _data() -> str:
    return _part(
        "10",
        "the price of data",
        data_prices(),
        ("data on each instance", "dollars per GB"),
        "The same workload without stragglers; each instance that starts reads all data.",
    )


def _trials() -> str:
    return _part(
        "11",
        "the number of trials",
        sizes(),
        ("billing", "trials"),
        "SHA(n, 4, 508) of ResNet-50, batches of 512, 20 minutes.",
    )


def _starts() -> str:
    return _part(
        "12",
        "start-up",
        starts(),
        ("start-up", "minutes"),
        "SHA(512, 4, 4096) of ResNet-50, batches of 2048, iterations of 12 s on one GPU.",
    )


def _promotion() -> str:
    """Return what promotion before the end of a stage saves on the plans of figure 9."""
    rows = []
    for case in stragglers()["instance"]:
        plan = case.plans["ours"]
        assert plan is not None
        spread = float(case.name)
        saved = early_promotion(resnet50(spread=spread), p3(), nodes(plan), ahead=False)
        cost = 100 * saved.cost / plan.cost.expected
        time = 100 * saved.seconds / plan.seconds.expected
        rows.append([case.name, f"{time:+.1f}", f"{cost:+.1f}", "yes" if saved.pays else "no"])
    columns = ["standard deviation of an iteration, s", "time saved, %", "money saved, %", "pays"]
    return f"""**Promotion before a stage ends**, of trials that are certain to be promoted, with the
plans of figure 9 (billing per instance), in simulation.

{table(columns, rows)}"""


def _part(number: str, title: str, groups: dict[str, list[Case]], axes: tuple[str, str], text: str) -> str:
    rows = [
        [group, case.name, *(case.cell(policy) for policy in POLICIES), case.gain]
        for group, cases in groups.items()
        for case in cases
    ]
    picture = _draw(number, groups, axes)
    return f"""**Figure {number}: {title}, in simulation, dollars.** {text} The scaling is an assumption
(`bench/elastic/workloads.py`).

{table([*axes, *POLICIES, "static / ours"], rows)}

![Figure {number}](pictures/{picture})"""


def _draw(number: str, groups: dict[str, list[Case]], axes: Sequence[str]) -> str:
    """Draw the costs of each group, and return the name of the picture."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "hoptree"
    import matplotlib.pyplot as plt

    figure, plots = plt.subplots(1, len(groups), figsize=(4.2 * len(groups), 3.2), sharey=True, squeeze=False)
    for plot, (group, cases) in zip(plots[0], groups.items(), strict=True):
        for policy, marker in zip(POLICIES, "s^vdo", strict=True):
            drawn = [case for case in cases if case.plans[policy] is not None]
            plot.plot(
                [case.name for case in drawn], [case.cost(policy) for case in drawn], marker=marker, label=policy
            )
        plot.set_title(f"{axes[0]}: {group}", fontsize=9)
        plot.set_xlabel(axes[1], fontsize=9)
        plot.set_yscale("log")
    plots[0][0].set_ylabel("dollars", fontsize=9)
    plots[0][0].legend(fontsize=7)
    figure.tight_layout()
    name = f"elastic-{number}.svg"
    figure.savefig(PICTURES / name, metadata={"Date": None})
    plt.close(figure)
    return name
