"""The figures as text, with the aims beside them: shown, not asserted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any

from bench.cluster import nodes, store_use
from bench.cluster.w1 import CONTESTANTS, Run, Runs
from bench.results import table
from bench.speed.report import aims, middle

_W1 = (
    "The workload of `bench.speed`: 8 configs, an MLP on Fashion-MNIST, 3 epochs, 2 workers with one torch thread "
    "each. {repeats} interleaved repeats, median (least to greatest). Every program joins a cluster that is up, "
    "started for it and not counted; its first node is the head. The program is from start to exit. The call is "
    "`study.run()`, which joins the cluster, places the data, starts workers and saves models; for Ray Tune it is "
    "`ray.init()`, the tuner with its data put into the object store, and `fit()`, which is also shown alone. "
    "Training is from the first worker's being ready to the last event in the journal, the rest of the call is "
    "start and end. CPU seconds are of the program with its workers, and of Ray's daemons: on one machine the "
    "daemons of all nodes take theirs from the two cores that train, and what hops between nodes is copied by "
    "them. All runs of Hoptree come to the same fingerprints: this is asserted."
)
_HELD = (
    "{models} models of {state} over a dataset of {data} in {partitions} partitions, {epochs} epochs of cheap "
    "passes that read all of it. Nodes are those of `ray.cluster_utils.Cluster`, all on this machine, each with a "
    "copy of its partitions on a disk of its own. Held is what is resident of these files in the memory of the "
    "node's workers, from `/proc/PID/smaps`, the most that was seen; a file that two workers of a node map counts "
    "once. Task parallelism is measured beside it: a task on every node reads an array as large as the whole "
    "dataset from the object store, and what each node's store then holds is shown."
)
_TRAFFIC = (
    "The same runs: bytes for each epoch of all {models} models. Between nodes is what the backend counts; brought "
    "is what the nodes' object stores say that they took in beyond what was made on them. The formulas are those "
    "of table 2 of the Cerebro paper with p = {partitions} partitions, a batch of 256, over all {epochs} epochs, "
    "divided by them."
)
_HOP = (
    "A state of torch weights, {size:.0f} MB, out of a model in one actor and in place in a model in another, the "
    "driver hearing of it in between as in the backend: on one node, where it is mapped, and on two, where Ray "
    "copies it through a socket of this machine. Beside it a memory copy of as many bytes between warm buffers. "
    "{repetitions} interleaved repetitions: median (least to greatest)."
)
_STORE = (
    "{models} models with states of {state} on two nodes. All object stores together, seen about {rate:.0f} "
    "times a second. Referenced is what is still needed. Ray lets go of the rest at once, but removes it"
    " from time to time only, about once a second, or when a store needs room: so all that lies there is up to"
    " a second of states more, and the faster the units, the more. The run is repeated with longer units, with"
    " stores that are smaller than what a second makes, and on a cluster that removes at once "
    "(`free_objects_batch_size=1`), as one does that Hoptree starts itself. Judged are averages, since a "
    "single look sees a moment: of what is referred to the second half of the run against the first, of all "
    "that lies there the last quarter against the second, since units become faster while stores are filled "
    "for the first time. Left is what another job sees after the program has ended: bytes in stores, actors, "
    "references."
)


def w1(runs: Runs, repeats: int) -> str:
    """Return the race."""
    rows = []
    for name, several in runs.items():
        hoptree = not name.startswith("tune")
        hopped = f"{several[-1].hopped / 1e6:,.0f} MB, {several[-1].between / 1e6:,.0f} MB"
        rows.append(
            [
                CONTESTANTS[name].title,
                middle([run.program for run in several], 1, " s"),
                middle([run.run for run in several], 1, " s"),
                middle([run.training if hoptree else run.fit for run in several], 1, " s")
                + ("" if hoptree else ", `fit()`"),
                middle([run.run / local.run for run, local in zip(several, runs["local"], strict=True)], 3),
                *(middle([run.spent[kind] for run in several], 1, " s") for kind in (0, 1)),
                hopped if hoptree else "",
                f"{median(run.accuracy for run in several):.4f}",
            ]
        )
    columns = [
        "contestant",
        "program",
        "call",
        "training",
        "call over local's in its repeat",
        "CPU, program and workers",
        "CPU, Ray's daemons",
        "hopped, between nodes",
        "mean accuracy",
    ]
    text = f"## Clusters: workload W1\n\n{_W1.format(repeats=repeats)}\n\n{table(columns, rows)}"
    return f"{text}\n\n{aims(_w1_aims(runs))}"


def _w1_aims(runs: Runs) -> list[tuple[str, str, bool]]:
    found = []
    for name, peer in (("ray", "tune"), ("ray-2", "tune-2")):
        title = CONTESTANTS[name].title
        for aim, mine, other, limit in (
            ("call at most 1.10 x local's", "run", ("local", "run"), 1.10),
            ("program at most 1.10 x local's", "program", ("local", "program"), 1.10),
            ("program below Ray Tune's there", "program", (peer, "program"), 1.0),
            ("call below Ray Tune's `fit()` there", "run", (peer, "fit"), 1.0),
        ):
            ratios = _ratios(runs[name], mine, runs[other[0]], other[1])
            found.append((f"{title}: {aim}", f"{middle(ratios, 3)} x", median(ratios) <= limit))
    return found


def _ratios(ones: Sequence[Run], one: str, others: Sequence[Run], other: str) -> list[float]:
    return [getattr(a, one) / getattr(b, other) for a, b in zip(ones, others, strict=True)]


def held(found: Sequence[nodes.Figures]) -> str:
    """Return what nodes hold."""
    rows, aimed = [], []
    for figures in found:
        share = figures.data / figures.shape.nodes
        mine = [held / share for held in figures.held.resident]
        rows.append(
            [
                figures.shape,
                _mib(share),
                _several(figures.held.resident),
                _several(figures.held.disk),
                _several(figures.tasks),
                f"{sum(figures.tasks) / max(1, sum(figures.held.resident)):.2f} x",
            ]
        )
        met = len(mine) == figures.shape.nodes and all(0.9 <= one <= 1.1 for one in mine)
        aim = f"{figures.shape}: every node holds 1/{figures.shape.nodes} of the dataset, within 10 %"
        aimed.append((aim, f"{min(mine, default=0):.3f} to {max(mine, default=0):.3f} x", met))
    columns = [
        "cluster",
        "1/nodes of the dataset",
        "held by a node, in memory",
        "on its disk",
        "task parallelism, in memory",
        "task parallelism over Hoptree, all nodes",
    ]
    about = _HELD.format(data=_mib(found[0].data), **_models())
    return f"## Clusters: data held by nodes\n\n{about}\n\n{table(columns, rows)}\n\n{aims(aimed)}"


def traffic(found: Sequence[nodes.Figures]) -> str:
    """Return what goes between nodes."""
    rows, aimed = [], []
    epochs = nodes.MODELS.epochs
    for figures in found:
        formulas = figures.traffic
        between = figures.savings["bytes_between_nodes"]
        rows.append(
            [
                figures.shape,
                *(_mib(count / epochs) for count in (figures.savings["bytes_hopped"], between, figures.brought)),
                f"{between / formulas['model_hopper']:.3f} x",
                *(_mib(formulas[way] / epochs) for way in _WAYS),
            ]
        )
        met = between <= formulas["model_hopper"] and abs(figures.brought - between) <= 0.01 * figures.made
        aim = f"{figures.shape}: at most the formula, and Ray's count within 1 % of all bytes made"
        aimed.append((aim, f"{_mib(between)}, {_mib(figures.brought)}", met))
    columns = [
        "cluster",
        "hopped",
        "between nodes",
        "brought",
        "between nodes over kmp\\|S\\| + m\\|S\\|",
        *_WAYS.values(),
    ]
    about = _TRAFFIC.format(**_models())
    return f"## Clusters: bytes between nodes per epoch\n\n{about}\n\n{table(columns, rows)}\n\n{aims(aimed)}"


_WAYS = {
    "model_hopper": "formula: model hopper",
    "task_parallelism": "task parallelism, all copied",
    "remote_reads": "task parallelism, read remotely",
    "bulk_synchronous": "bulk synchronous",
    "parameter_server": "parameter server",
    "all_reduce": "all-reduce",
}


def hop(figures: Mapping[str, Any]) -> str:
    """Return the cost of hops."""
    seconds: dict[str, list[float]] = figures["seconds"]
    titles = {"copy": "memory copy", "within": "hop within a node", "between": "hop between two nodes"}
    rows = [
        [
            title,
            middle([1000 * second for second in seconds[way]], 0, " ms"),
            middle([figures["bytes"] / second / 1e6 for second in seconds[way]], 0, " MB/s"),
            middle([mine / copy for mine, copy in zip(seconds[way], seconds["copy"], strict=True)], 1, " x"),
        ]
        for way, title in titles.items()
    ]
    about = _HOP.format(size=figures["bytes"] / 1e6, repetitions=len(seconds["copy"]))
    return f"## Clusters: hops\n\n{about}\n\n{table(['way', 'time', 'speed', 'memory copies that it takes'], rows)}"


def store(found: Mapping[str, store_use.Figures]) -> str:
    """Return what the object stores kept."""
    rows, aimed = [], []
    for way, figures in found.items():
        quarters = figures.quarters()
        halves = [quarters[0] + quarters[1], quarters[2] + quarters[3]]
        referred = [[sample.referred for sample in half] for half in halves]
        used = [[sample.used for sample in quarters[index]] for index in (1, 3)]
        per_model = figures.savings["state_bytes"] * figures.models.configs
        rows.append(
            [
                way,
                figures.hops,
                *(_spread(some) for some in referred),
                f"{max(referred[0] + referred[1], default=0) / per_model:.1f}",
                *(_spread(some) for some in used),
                _mib(figures.spilled),
                f"{figures.left_bytes} bytes, {figures.left_actors}, {figures.left_references}",
            ]
        )
        for aim, (first, second) in (
            ("what is referred to is flat, the second half at most 1.10 x the first", referred),
            ("what lies there is flat, the last quarter at most 1.10 x the second", used),
        ):
            growth = _mean(second) / max(1.0, _mean(first))
            aimed.append((f"{way}: {aim}", f"{growth:.2f} x", growth <= 1.1))
        aimed.append((f"{way}: nothing spilled", _mib(figures.spilled), figures.spilled == 0))
        left = figures.left_bytes + figures.left_actors + figures.left_references
        aimed.append((f"{way}: nothing left after the study", str(left), left == 0))
    columns = [
        "cluster",
        "hops",
        "referred to, first half",
        "second half",
        "states per model, at most",
        "lies there, second quarter",
        "last quarter",
        "spilled",
        "left",
    ]
    one = next(iter(found.values()))
    samples = one.samples
    about = _STORE.format(
        models=one.models.configs,
        state=_mib(one.models.state),
        rate=len(samples) / (samples[-1].seconds - samples[0].seconds),
    )
    return f"## Clusters: use of the object store\n\n{about}\n\n{table(columns, rows)}\n\n{aims(aimed)}"


def _mean(counts: Sequence[int]) -> float:
    return mean(counts) if counts else 0.0


def _spread(counts: Sequence[int]) -> str:
    low, high = min(counts, default=0), max(counts, default=0)
    return f"{_mib(_mean(counts))} ({_mib(low)} to {_mib(high)})"


def _models() -> dict[str, Any]:
    models = nodes.MODELS
    shown = {"models": models.configs, "state": _mib(models.state), "epochs": models.epochs}
    return {**shown, "partitions": nodes.PARTITIONS}


def _mib(count: float) -> str:
    return f"{count / 2**20:,.0f} MiB"


def _several(counts: Sequence[int]) -> str:
    low, high = _mib(min(counts, default=0)), _mib(max(counts, default=0))
    return low if low == high else f"{low} to {high}"
