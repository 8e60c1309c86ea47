"""``hoptree demo`` and ``hoptree simulate``."""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click
import msgspec

from hoptree.core.errors import WorkloadError
from hoptree.ui.common import print_json

POLICIES: Final = (
    "first-come",
    "longest-path",
    "random",
    "breadth-first",
    "most-children",
    "monte-carlo",
)  # the names in hoptree.core, without importing it

if TYPE_CHECKING:
    from hoptree.forecast.simulation import Simulation
    from hoptree.simulator.cluster import Cluster
    from hoptree.simulator.workload import Workload


@click.command(name="demo", short_help="Train a small study on handwritten digits.")
@click.option("--simulate", "simulated", is_flag=True, help="Only simulate, on a virtual cluster.")
@click.option("--workers", default=None, type=int, help="Worker processes.  [default: one per core]")
def demo_command(simulated: bool, workers: int | None) -> None:
    """Train a small study on handwritten digits; common prefixes of trials are trained once.

    Example: hoptree demo
    """
    from hoptree.forecast.simulation import simulate
    from hoptree.ui.demo import demo_workload, train_demo

    if not simulated:
        click.echo(train_demo(workers))
        return
    workload, cluster = demo_workload()
    result = simulate(workload, cluster)
    unshared = simulate(msgspec.structs.replace(workload, share=False), cluster)
    click.echo(
        "Simulated: 8 configs with common prefixes, 12 epochs each, on 4 workers with a quarter of the data each"
    )
    click.echo(result.table())
    click.echo(result.gantt(_width(), colour=sys.stdout.isatty()))
    click.echo(f"Without sharing it would take {unshared.makespan / result.makespan:.2f} times as long.")


@click.command(name="simulate", short_help="Estimate how long a model selection would take.")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--configs", default=16, show_default=True, help="Number of configs, without common prefixes.")
@click.option("--epochs", default=1, show_default=True)
@click.option("--partitions", default=None, type=int, help="Partitions of the dataset.  [default: one per worker]")
@click.option("--workers", default=8, show_default=True)
@click.option("--replicas", default=1, show_default=True, help="Workers that hold each partition.")
@click.option("--heterogeneous", is_flag=True, help="Draw costs of 35 CNNs and speeds of 4 GPUs at random.")
@click.option("--seconds", default=1.0, show_default=True, help="Time of a unit.")
@click.option("--every", default=0, help="Epochs between reports.  [default: only at the end]")
@click.option("--evaluation", default=0.0, help="Time of an evaluation, in seconds.")
@click.option("--state-mb", default=0.0, help="Size of a state, in MB.")
@click.option("--bandwidth", default=0.0, help="MB per second to move a state.  [default: takes no time]")
@click.option("--noise", default=0.0, help="Relative spread of unit times.")
@click.option("--stragglers", default=0.0, help="Fraction of units that take three times as long.")
@click.option("--nodes", default="", metavar="N,N", help="Devices of each node, instead of workers: 4,2,2.")
@click.option(
    "--scaling", default="", help="Speed-ups of several devices: linear, or 2:1.8,4:3.1.  [default: one device]"
)
@click.option(
    "--policy",
    default="first-come",
    metavar="NAME",
    type=click.Choice(POLICIES),
    help=f"One of {', '.join(POLICIES)}.  [default: first-come]",
)
@click.option("--order", default="strict", show_default=True, type=click.Choice(["strict", "free"]))
@click.option("--share/--no-share", default=True, help="Train common prefixes once.  [default: share]")
@click.option("--barrier", is_flag=True, help="Trials wait for each other at every report (needs --every).")
@click.option("--seed", default=0, show_default=True)
@click.option("--gantt/--no-gantt", default=True, help="Draw the schedule in the terminal.")
@click.option(
    "--save", type=click.Path(dir_okay=False, path_type=Path), help="Write the chart to an .svg or .png file."
)
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path), help="Write a .json trace for Perfetto.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def simulate_command(file: Path | None, **options: Any) -> None:
    """Estimate how long a model selection would take, and how much would be shared.

    FILE is a TOML file with [workload] and [cluster] tables; without it the options describe the workload.

    \b
    Examples:
      hoptree simulate --configs 16 --workers 8 --epochs 5
      hoptree simulate --configs 256 --workers 16 --heterogeneous --order free
      hoptree simulate --configs 6 --nodes 4,2,2 --scaling 2:1.8,4:3.1
      hoptree simulate study.toml --save gantt.svg --trace trace.json
    """  # noqa: D301 click needs the real character
    from hoptree.forecast.simulation import simulate
    from hoptree.ui import workload_file

    if file:
        _check_beside_file(file)
        workload, cluster = workload_file.read(file)
        if options["share"] is False:
            workload = msgspec.structs.replace(workload, share=False)
    else:
        workload, cluster = _described(options)
    result = simulate(workload, cluster, policy=options["policy"], order=options["order"], seed=options["seed"])
    _show(result, options)


def _check_beside_file(file: Path) -> None:
    """Raise an error for options that would be ignored: a file describes the whole workload."""
    context = click.get_current_context()
    for name in context.params:
        given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if given and name not in _BESIDE_FILE:
            option = "--" + name.replace("_", "-")
            raise WorkloadError(f"{option}: {file} describes the workload; set this value in the file instead")


_BESIDE_FILE = ("file", "policy", "order", "share", "seed", "gantt", "save", "trace", "as_json")


def _described(options: dict[str, Any]) -> tuple[Workload, Cluster]:
    from hoptree.optimize.settings import CNN_MFLOPS, GPU_TFLOPS
    from hoptree.simulator.cluster import Cluster, WorkerSpec
    from hoptree.simulator.workload import Workload

    configs = options["configs"]
    nodes = _numbers("--nodes", options["nodes"])
    if nodes:
        _check_without_workers()
    workers = sum(nodes) or options["workers"]
    seconds: float | list[float] = options["seconds"]
    specs: int | list[WorkerSpec] = workers
    if options["heterogeneous"] and workers > 0 and configs > 0:
        draw = random.Random(options["seed"])
        costs = draw.choices(list(CNN_MFLOPS.values()), k=configs)
        mean = sum(CNN_MFLOPS.values()) / len(CNN_MFLOPS)
        seconds = [options["seconds"] * cost / mean for cost in costs]
        speeds = draw.choices(list(GPU_TFLOPS.values()), k=workers)
        mean_speed = sum(GPU_TFLOPS.values()) / len(GPU_TFLOPS)
        specs = [WorkerSpec(name=f"w{i}", speed=speed / mean_speed) for i, speed in enumerate(speeds)]
    scaling = _scaling(options["scaling"])
    cluster = Cluster(
        **({"nodes": nodes} if nodes else {"workers": specs}),
        scaling={"data": scaling} if scaling else {},
        replicas=options["replicas"],
        bandwidth=options["bandwidth"] * 1e6,
        noise=options["noise"],
        stragglers=options["stragglers"],
    )
    workload = Workload(
        configs=configs,
        epochs=options["epochs"],
        partitions=workers if options["partitions"] is None else options["partitions"],
        every=options["every"],
        share=options["share"],
        barrier=options["barrier"],
        seconds=seconds,
        evaluation_seconds=options["evaluation"],
        state_bytes=options["state_mb"] * 1e6,
    )
    return workload, cluster


def _check_without_workers() -> None:
    context = click.get_current_context()
    for name in ("workers", "replicas", "heterogeneous"):
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise WorkloadError(
                f"--{name}: given beside --nodes, which says what workers there are; omit one of them"
            )


def _numbers(field: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")] if text else []
    except ValueError:
        raise WorkloadError(f"{field}: {text!r}; expected whole numbers, such as 4,2,2") from None


def _scaling(text: str) -> Literal["linear"] | dict[int, float]:
    if text == "linear":
        return "linear"
    try:
        pairs = [part.split(":") for part in text.split(",")] if text else []
        return {int(width): float(speed) for width, speed in pairs}
    except ValueError:
        raise WorkloadError(f"--scaling: {text!r}; expected linear, or speed-ups such as 2:1.8,4:3.1") from None


def _show(result: Simulation, options: dict[str, Any]) -> None:
    if options["as_json"]:
        print_json(result.to_dict())
    else:
        click.echo(result.table())
        if options["gantt"] and result.timeline.spans:
            click.echo(result.gantt(_width(), colour=sys.stdout.isatty()))
    for field in ("save", "trace"):
        if options[field] is not None:
            result.save(options[field])
            click.echo(f"wrote {options[field]}", err=True)


def _width() -> int:
    return max(40, shutil.get_terminal_size((100, 24)).columns)
