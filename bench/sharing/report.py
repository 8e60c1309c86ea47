"""The figures as text, with the aims beside them: shown, not asserted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from bench.results import table
from bench.sharing.race import ALONE, RAY_TUNE, SHARE, Run, Runs
from bench.sharing.spaces import CASES, COUNTS, SETS, TOGETHER, merge_rate
from bench.speed.report import aims, middle

_ABOUT = (
    "A residual network on {rows} images of Fashion-MNIST (14 x 14), evaluated on {valid} after every epoch; 2 "
    "workers with one torch thread each. {repeats} interleaved repeats, each contestant a program of its own: "
    "median (least to greatest). Training CPU is what the processes that train spend from their first unit to "
    "their last, plus the first process while the study runs; it leaves out the start, in which everybody imports "
    "torch. CPU in all and wall time are from the program's start to its exit."
)
_SINGLE = (
    "The searches of table 6.2 of the stage-tree paper, scaled down from 120 epochs to 16. The merge rate is that "
    "of the space, all its trials at full length, as in the paper. SHA and ASHA stop trials early, and the ends of "
    "trials share least, so they save more than that. Ray Tune trains the same trials by hand with its own ASHA, "
    "which is `mode=\"stop\"`, and the rungs of SHA as runs that start from checkpoints. With ASHA, what is trained "
    "depends on who comes first, so each contestant stops others. In the grids and in SHA all trials have the same "
    "curves, and all complete ones the same fingerprints, with and without sharing: this is asserted in every "
    "repeat."
)
_SEVERAL = (
    "Eight studies of 16 trials each, as in section 6.2 of the stage-tree paper, each with `{search}`. Unshared: "
    "each in a store of its own, every trial alone; this is what the paper's merge rate of several spaces is "
    "about. Alone: each in a store of its own, its trials share. After: one after another on one store. Together: "
    "`ht.run([…])`. All ways give the same curves for all trials and the same fingerprints for the complete ones: "
    "this is asserted in every repeat."
)


def about(rows: int, valid: int, repeats: int) -> str:
    """Return what holds for all figures."""
    return _ABOUT.format(rows=f"{rows:,}", valid=valid, repeats=repeats)


def single(races: dict[str, Runs], general: str) -> str:
    """Return the races of single studies."""
    rows, aimed = [], []
    for name, runs in races.items():
        case = CASES[name]
        rate = merge_rate(case.space)
        for contestant, several in runs.items():
            rows.append(
                [
                    case.title,
                    f"{rate:.2f} ({case.paper})",
                    contestant,
                    middle([run.epochs() for run in several], 0),
                    *_costs(several),
                    middle([run.outcomes[0].best for run in several], 4),
                ]
            )
        least = 0.97 * rate if name.startswith("grid") else rate
        aim = f"{'at least 0.97 x' if name.startswith('grid') else 'more than'} the merge rate, {least:.2f}"
        saved = _ratios(runs[ALONE], runs[SHARE], Run.seconds)
        met = median(saved) >= least if name.startswith("grid") else median(saved) > least
        paper = f" (the paper: {case.saved})" if case.saved else ""
        aimed.append((f"{case.title}: training CPU saved, {aim}{paper}", middle(saved), met))
        if RAY_TUNE in runs:
            over_ray = _ratios(runs[RAY_TUNE], runs[SHARE], Run.seconds)
            aimed.append((f"{case.title}: less training CPU than Ray Tune, by", middle(over_ray), median(over_ray) > 1))
        if case.synchronous:
            bests = {run.outcomes[0].best for run in (*runs[SHARE], *runs[ALONE])}
            aimed.append((f"{case.title}: the same best accuracy with and without", f"{bests}", len(bests) == 1))
    columns = ["search", "merge rate (paper)", "contestant", "epochs trained", *_COSTS, "best accuracy"]
    return f"## Sharing: one study\n\n{general} {_SINGLE}\n\n{table(columns, rows)}\n\n{aims(aimed)}"


def several(races: dict[str, Runs], general: str) -> str:
    """Return the races of several studies."""
    parts = [f"## Sharing: several studies\n\n{general} {_SEVERAL.format(search=TOGETHER)}"]
    for name, runs in races.items():
        studies = SETS[name]
        rows, aimed = [], []
        for place, count in enumerate(COUNTS):
            paper = f" ({studies.paper[place]})" if studies.paper else ""
            together = runs[f"together {count}"]
            ways = [(mode, runs[mode], count) for mode in ("unshared", "alone", "after")]
            for title, way, first in (*ways, ("together", together, None)):
                rows.append(
                    [
                        count,
                        f"{merge_rate(*studies.spaces[:count]):.2f}{paper}",
                        title,
                        middle([run.epochs(first) for run in way], 0),
                        middle([run.seconds(first) for run in way], 1, " s"),
                        middle([run.seconds(count) / other.seconds() for run, other in zip(runs["unshared"], way, strict=True)])
                        if title == "together"
                        else middle([a.seconds(count) / b.seconds(count) for a, b in zip(runs["unshared"], way, strict=True)]),
                        middle([a.seconds(count) / b.seconds(first) for a, b in zip(runs["alone"], way, strict=True)]),
                    ]
                )
        parts.append(f"### {studies.title.capitalize()}\n\n{table(_WAYS, rows)}\n\n{aims(aimed)}")
    return "\n\n".join(parts)


_COSTS = ["training CPU", "CPU in all", "wall time"]
_WAYS = ["studies", "merge rate (paper)", "how", "epochs trained", "training CPU", "saved, of unshared", "saved, of alone"]


def _costs(runs: Sequence[Run]) -> list[str]:
    return [
        middle([run.seconds() for run in runs], 1, " s"),
        middle([run.measured.cpu for run in runs], 1, " s"),
        middle([run.measured.wall for run in runs], 1, " s"),
    ]


def _ratios(ones: Sequence[Run], others: Sequence[Run], seconds: Callable[[Run], float]) -> list[float]:
    return [seconds(one) / seconds(other) for one, other in zip(ones, others, strict=True)]
