"""The figures as text, with the aims beside them: shown, not asserted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from statistics import median
from typing import TypeAlias

from bench.results import table
from bench.sharing.race import ALONE, RAY_TUNE, SHARE, Run, Runs
from bench.sharing.spaces import CASES, COUNTS, SETS, TOGETHER, Case, merge_rate
from bench.speed.report import aims, middle
from hoptree import Grid

Aim: TypeAlias = tuple[str, str, bool]

GRID = 0.97  # of the merge rate, saved
EIGHT = 2.4  # times less, for eight studies

_ABOUT = (
    "A residual network on {rows} images of Fashion-MNIST (14 x 14), evaluated on {valid} after every epoch; 2 "
    "workers with one torch thread each. {repeats} interleaved repeats, each contestant a program of its own: "
    "median (least to greatest). Training CPU is what the processes that train spend from their first unit to "
    "their last, plus the first process while the study runs; it leaves out the start, in which everybody imports "
    "torch. CPU in all (with Ray's daemons) and wall time are from the program's start to its exit."
)
_SINGLE = (
    "The searches of table 6.2 of the stage-tree paper, scaled down from 120 epochs to 16. The merge rate is that "
    "of the space, all its trials at full length, as in the paper. The paper names the kinds of schedules in a "
    "space and its merge rate, not the values. Ours were made to match the merge rate (in brackets the paper's): "
    "that the two are close is no result. SHA and ASHA stop trials early, and the ends of trials share least, so "
    "they save more than that. Ray Tune trains the same trials by hand with its own ASHA, "
    'which is `mode="stop"`, and the rungs of SHA as runs that start from checkpoints. With ASHA, what is trained '
    "depends on who comes first, so each contestant stops others; Ray Tune's also lets ties go on, so see the "
    "epochs beside the seconds. In the grids and in SHA all trials have the same curves, "
    "and all complete ones the same fingerprints, with and without sharing: this is asserted in every repeat."
)
_SEVERAL = (
    "Eight studies of 16 trials each, as in section 6.2 of the stage-tree paper, each with `{search}`. Unshared: "
    "each in a store of its own, every trial alone; this is what the paper's merge rate of several spaces is "
    "about. Alone: each in a store of its own, its trials share. After: one after another on one store. Together: "
    "`ht.run([…])`. The paper's 2.47 for eight studies is of unshared. The spaces of the first set were made to "
    "match the paper's merge rates (in brackets): that these are close is no result. Of alone, such merge rates "
    "leave less to save, since most is shared within each study already; so there is a second set, whose studies "
    "have more in common. All ways give the same curves for all trials and the same fingerprints for the complete "
    "ones: this is asserted in every repeat."
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
        rows += [
            [
                case.title,
                f"{rate:.2f} ({case.paper})",
                contestant,
                middle([run.epochs() for run in of_it], 0),
                *_costs(of_it),
                middle([run.outcomes[0].best for run in of_it], 4),
            ]
            for contestant, of_it in runs.items()
        ]
        aimed += _aims(case, rate, runs)
    columns = [
        "search",
        "merge rate, made to match (the paper's)",
        "contestant",
        "epochs trained",
        *_COSTS,
        "best accuracy",
    ]
    return f"## Sharing: one study\n\n{general} {_SINGLE}\n\n{table(columns, rows)}\n\n{aims(aimed)}"


def _aims(case: Case, rate: float, runs: Runs) -> list[Aim]:
    seconds = {contestant: [run.seconds() for run in of_it] for contestant, of_it in runs.items()}
    saved = _over(seconds[ALONE], seconds[SHARE])
    paper = f" (the paper: {case.saved})" if case.saved else ""
    if isinstance(case.search, Grid):
        aim, met = f"at least {GRID} x the merge rate, {GRID * rate:.2f}", median(saved) >= GRID * rate
    else:
        aim, met = f"more than the merge rate, {rate:.2f}", median(saved) > rate
    found = [(f"{case.title}: training CPU saved, {aim}{paper}", f"{middle(saved)} x", met)]
    if RAY_TUNE in runs:
        of_ray = _over(seconds[RAY_TUNE], seconds[SHARE])
        found.append((f"{case.title}: less training CPU than Ray Tune", f"{middle(of_ray)} x", median(of_ray) > 1))
    if case.synchronous:
        bests = sorted({run.outcomes[0].best for run in (*runs[SHARE], *runs[ALONE])})
        aim = f"{case.title}: the same best accuracy with and without sharing"
        found.append((aim, ", ".join(f"{best:.4f}" for best in bests), len(bests) == 1))
    return found


def several(races: dict[str, Runs], general: str) -> str:
    """Return the races of several studies."""
    parts = [f"## Sharing: several studies\n\n{general} {_SEVERAL.format(search=TOGETHER)}"]
    for name, runs in races.items():
        rows, aimed = [], []
        for count in COUNTS:
            ways = {mode: [run.seconds(count) for run in runs[mode]] for mode in ("unshared", "alone", "after")}
            ways["together"] = [run.seconds() for run in runs[f"together {count}"]]
            rows += [_way(name, count, mode, runs, ways) for mode in ways]
        for base, mode in product(("unshared", "alone"), ("together", "after")):
            saved = _over(ways[base], ways[mode])
            aim = f"eight studies {mode}: training CPU saved, of {base}, at least {EIGHT} x"
            aimed.append((aim, f"{middle(saved)} x", median(saved) >= EIGHT))
        rate = "merge rate, made to match (the paper's)" if SETS[name].paper else "merge rate"
        columns = ["studies", rate, *_WAYS]
        parts.append(f"### {SETS[name].title.capitalize()}\n\n{table(columns, rows)}\n\n{aims(aimed)}")
    return "\n\n".join(parts)


def _way(name: str, count: int, mode: str, runs: Runs, ways: dict[str, list[float]]) -> list[str]:
    studies = SETS[name]
    paper = f" ({studies.paper[COUNTS.index(count)]})" if studies.paper else ""
    trained = runs[f"together {count}"] if mode == "together" else runs[mode]
    return [
        f"{count}",
        f"{merge_rate(*studies.spaces[:count]):.2f}{paper}",
        mode,
        middle([run.epochs(None if mode == "together" else count) for run in trained], 0),
        middle(ways[mode], 1, " s"),
        *(middle(_over(ways[base], ways[mode])) for base in ("unshared", "alone")),
    ]


_COSTS = ["training CPU", "of it, in units", "CPU in all", "wall time"]
_WAYS = [
    "how",
    "epochs trained",
    _COSTS[0],
    "saved, of unshared",
    "saved, of alone",
]


def _costs(runs: Sequence[Run]) -> list[str]:
    return [
        middle([run.seconds() for run in runs], 1, " s"),
        middle([sum(outcome.cpu.training for outcome in run.outcomes) for run in runs], 1, " s"),
        middle([run.measured.cpu for run in runs], 1, " s"),
        middle([run.measured.wall for run in runs], 1, " s"),
    ]


def _over(ones: Sequence[float], others: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(ones, others, strict=True)]
