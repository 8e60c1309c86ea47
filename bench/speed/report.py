"""The figures as text, with the aims beside them: shown, not asserted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from bench.results import table
from bench.speed import measure, units
from bench.speed.race import CONTESTANTS, Race

_W1 = (
    "Fashion-MNIST, 8 configs (4 learning rates x 2 weight decays), MLP 784-1000-500-10, fused Adam, batch 256, 3 "
    "epochs, loss and accuracy on the 10,000 test images after each epoch, 2 workers with one torch thread each. "
    "{repeats} interleaved repeats, each contestant a program of its own, from its start to its exit: median "
    "(least to greatest). All train on the same numbers, scaled to float32 beforehand. The bare bound is a loop "
    "by hand over tensors in memory in two plain processes; Ray Tune and Optuna run that loop, Ray Tune with the "
    "data in its object store and with actors that are used again. Only Hoptree saves models (8), and a journal. "
    "An epoch of Hoptree is 4 partitions of 59 steps, 236; one of the others 235.\n\n"
    "Memory is the highest sum of the proportional set sizes of all processes, shared memory included, seen every "
    "{period:g} s or less often (looking takes at most {share:.0%} of a core). CPU time is that of all processes. "
    "Disk is what went to the block layer (without Ray's workers, which nobody waits for). Preparation is the "
    "one-time step from Debian's files to what a contestant reads, a program of its own: a dataset folder for "
    "Hoptree ({dataset}), arrays for the others ({arrays})."
)


def middle(values: Sequence[float], digits: int = 2, unit: str = "") -> str:
    """Return the median, with the least and the greatest if there are several.

    >>> middle([1, 2, 4], 1, " s")
    '2.0 s (1.0 to 4.0)'
    """
    text = f"{median(values):.{digits}f}{unit}"
    return text if len(values) == 1 else f"{text} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def aims(rows: Sequence[tuple[str, str, bool]]) -> str:
    """Return a table of aims."""
    return table(["aim", "measured", ""], [[aim, figure, "met" if met else "missed"] for aim, figure, met in rows])


def w1(race: Race, repeats: int) -> str:
    """Return the race."""
    rows = []
    for name, runs in race.runs.items():
        contestant = CONTESTANTS[name]
        measured = [run.measured for run in runs]
        preparation = median(race.preparations[contestant.form])
        hopped = runs[-1].hopped
        rows.append(
            [
                contestant.title,
                middle([one.wall for one in measured], 1, " s"),
                middle(race.ratios(name, "bare"), 3) if "bare" in race.runs else "",
                f"{median(one.wall for one in measured) + preparation:.1f} s",
                middle([one.cpu for one in measured], 1, " s"),
                f"{median(one.memory for one in measured) / 1e6:,.0f} MB",
                "" if hopped is None else f"{hopped / 1e6:.1f} MB",
                f"{median(one.disk for one in measured) / 1e6:.1f} MB",
                f"{median(run.accuracy for run in runs):.4f}",
            ]
        )
    columns = [
        "contestant",
        "wall time",
        "over the bare bound's in its repeat",
        "with preparation",
        "CPU time",
        "peak memory",
        "hopped",
        "disk written",
        "mean accuracy",
    ]
    about = _W1.format(
        repeats=repeats,
        period=measure.MEMORY_PERIOD,
        share=measure.MEMORY_SHARE,
        **{form: middle(seconds, 1, " s") for form, seconds in race.preparations.items()},
    )
    left = sum(run.measured.left for runs in race.runs.values() for run in runs)
    warning = f"\n\n**{left} processes had to be ended after their program.**" if left else ""
    text = f"## Speed: workload W1\n\n{about}\n\n{table(columns, rows)}{warning}"
    return f"{text}\n\n{aims(_w1_aims(race))}" if len(race.runs) == len(CONTESTANTS) else text


def _w1_aims(race: Race) -> list[tuple[str, str, bool]]:
    rows = []
    for other, limit in (("bare", 1.05), ("ray", 1.0), ("loader", 1.0)):
        ratios = race.ratios("hoptree", other)
        relation = "at most" if other == "bare" else "less than"
        aim = f"wall time {relation} {limit:g} x that of: {CONTESTANTS[other].title}"
        rows.append((aim, middle(ratios, 3), median(ratios) <= limit))
    memory = {name: median(run.measured.memory for run in race.runs[name]) for name in ("hoptree", "ray")}
    share = memory["hoptree"] / memory["ray"]
    rows.append(("peak memory below Ray Tune's", f"{share:.2f} x", share < 1))
    return rows


def hop(figures: Mapping[str, Any]) -> str:
    """Return the cost of hops."""
    rows, shares = [], {}
    for title, figure in figures.items():
        seconds = figure["seconds"]
        for way, name in (("copy", "memory copy"), ("hop", "hop"), ("fresh", "hop through a fresh file")):
            share = [copy / other for copy, other in zip(seconds["copy"], seconds[way], strict=True)]
            shares[title, way] = share
            speeds = [figure["bytes"] / second / 1e6 for second in seconds[way]]
            rows.append([title, name, middle(speeds, 0, " MB/s"), middle(share, 3)])
    share = shares["300 MB", "hop"]
    repetitions = len(share)
    about = (
        "A state of torch weights, out of a model in one process and in place in a model in another: through a "
        "slot that both have mapped already, and through a fresh file in `/dev/shm`. Beside it a memory copy of "
        f"as many bytes between warm buffers. {repetitions} interleaved repetitions: median (least to greatest)."
    )
    aim = "a whole hop of 300 MB at no less than 0.3 x the speed of one memory copy"
    return (
        f"## Speed: hops\n\n{about}\n\n{table(['state', 'way', 'speed', 'over the memory copy'], rows)}\n\n"
        + aims([(aim, f"{median(share):.3f} x", median(share) >= 0.3)])
    )


def overhead(seconds: Mapping[int, Sequence[float]]) -> str:
    """Return the overhead per unit."""
    about = (
        f"A study of {units.UNITS:,} units that do nothing ({units.CONFIGS} configs, {units.EPOCHS} epochs with "
        f"evaluation, {units.PARTITIONS} partitions; a state of 1 kB), from the start of its first unit until "
        "`study.run()` returns, per unit. Median (least to greatest) of the runs, each in fresh processes."
    )
    rows = []
    for workers, values in seconds.items():
        milliseconds = [1000 * value for value in values]
        aim = f"overhead per empty unit under 2 ms, {workers} worker{'s' if workers > 1 else ''}"
        rows.append((aim, middle(milliseconds, 2, " ms"), median(milliseconds) < 2))
    return f"## Speed: overhead per unit\n\n{about}\n\n{aims(rows)}"


def start_up(seconds: Sequence[float]) -> str:
    """Return the time to the first unit."""
    about = "W1, from `study.run()` until its first unit starts: median (least to greatest) of the runs."
    aim = "first unit starts within 4 s of `study.run()`"
    return f"## Speed: start-up\n\n{about}\n\n" + aims([(aim, middle(seconds, 2, " s"), median(seconds) <= 4)])
