"""Section 5.4 of the model-hopper paper: makespan over the lower bound, and CPU time to schedule."""

from __future__ import annotations

import time

from bench.decisions.settings import SEEDS, SETTINGS, name, run
from bench.results import record, spread, table
from hoptree.optimize import solve
from hoptree.optimize.grid import TOLERANCE
from hoptree.optimize.settings import paper_setting

ENGINE = {
    "first come, free": {"order": "free"},
    "longest path, free": {"order": "free", "policy": "longest-path"},
    "random, free": {"order": "free", "policy": "random"},
    "first come, strict": {"order": "strict"},
    "longest path, strict": {"order": "strict", "policy": "longest-path"},
    "random, strict": {"order": "strict", "policy": "random"},
}
LISTS = ("longest-path", "random", "vector")


def main() -> None:
    ratios: dict[str, dict[tuple[int, int, bool], list[float]]] = {}
    seconds: dict[str, list[float]] = {}
    for setting in SETTINGS:
        for seed in SEEDS:
            for scheduler, options in ENGINE.items():
                began = time.process_time()
                result = run(setting, seed, **options)
                seconds.setdefault(scheduler, []).append(time.process_time() - began)
                ratios.setdefault(scheduler, {}).setdefault(setting, []).append(result.makespan / result.bound)
            for method in LISTS:
                began = time.process_time()
                solution = solve(paper_setting(*setting, seed), method=method, seed=seed)  # type: ignore[arg-type]
                key = f"{method.replace('-', ' ')} (offline)"
                seconds.setdefault(key, []).append(time.process_time() - began)
                ratios.setdefault(key, {}).setdefault(setting, []).append(solution.makespan / solution.bound)
    rows: list[list[str]] = [
        [name(*setting), *(spread(ratios[scheduler][setting]) for scheduler in ratios)] for setting in SETTINGS
    ]
    for label, chosen in (("mean", SETTINGS), ("mean, heterogeneous", [s for s in SETTINGS if s[2]])):
        means = []
        for scheduler in ratios:
            values = [value for setting in chosen for value in ratios[scheduler][setting]]
            means.append(f"**{sum(values) / len(values):.4f}**")
        rows.append([label, *means])
    met = [sum(value <= 1 + TOLERANCE for row in by.values() for value in row) for by in ratios.values()]
    cases = len(SETTINGS) * len(SEEDS)
    rows.append(["at the bound, so optimal", *(f"{count} of {cases}" for count in met)])
    times = [f"{max(seconds[scheduler]):.3f} s" for scheduler in ratios]
    rows.append(["longest CPU time to schedule", *times])
    text = (
        "## Open shop: makespan over the lower bound (section 5.4 of the model-hopper paper)\n\n"
        "One epoch, one partition per worker, 5 seeds: mean (least to greatest). The engine's columns are whole "
        "simulated runs, one unit dispatched ahead. Solvers begin with the longest-path schedule (offline): where "
        "that is at the bound, there is nothing to solve.\n\n" + table(["setting", *ratios], rows)
    )
    record("open-shop", "python -m bench.decisions open-shop", text)
