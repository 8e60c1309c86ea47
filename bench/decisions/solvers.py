"""Exact solvers on the eight settings, where the paper's ran out of its five minutes."""

from __future__ import annotations

from bench.decisions.settings import SEEDS, SETTINGS, name, run
from bench.results import record, table
from hoptree.optimize import Solution, solve
from hoptree.optimize.settings import paper_setting

SECONDS = 60


def main() -> None:
    rows: list[list[str]] = []
    proven = 0
    for setting in SETTINGS:
        solved = [solve(paper_setting(*setting, seed), method="cp-sat", seconds=SECONDS) for seed in SEEDS]
        proven += all(solution.proven for solution in solved)
        milp = solve(paper_setting(*setting, 0), method="milp", seconds=SECONDS)
        followed = run(setting, 0, policy=solved[0].starts)
        rows.append(
            [
                name(*setting),
                f"{sum(s.proven for s in solved)} of {len(solved)}",
                f"{max(s.makespan / s.bound for s in solved):.5f}",
                f"{max(s.seconds for s in solved):.2f} s",
                _milp(milp),
                f"{followed.makespan / solved[0].makespan:.5f}",
            ]
        )
    columns = [
        "setting",
        "CP-SAT: proven optimal",
        "worst makespan / bound",
        "longest time",
        "MILP on HiGHS, seed 0",
        "engine following CP-SAT's schedule",
    ]
    text = (
        f"## Exact solvers\n\n{SECONDS} s limit, 5 seeds. CP-SAT proved optimality in all seeds of "
        f"**{proven} of {len(SETTINGS)}** settings. Both start from the longest-path schedule and stop at once "
        "when it meets the lower bound.\n\n" + table(columns, rows)
    )
    record("solvers", "python -m bench.decisions solvers", text)


def _milp(solution: Solution) -> str:
    word = "proven" if solution.proven else "not proven"
    return f"{solution.makespan / solution.bound:.5f}, {word}, {solution.seconds:.1f} s"
