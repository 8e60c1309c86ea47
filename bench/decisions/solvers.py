"""Exact solvers on the eight settings of section 5.4, and how often they have anything to solve there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bench.decisions.settings import SEEDS, SETTINGS, name, run
from bench.decisions.solve_taillard import shorter
from bench.results import record, table
from hoptree.optimize import Solution, solve
from hoptree.optimize.settings import paper_setting

SECONDS = 60


class Solved(NamedTuple):
    """One setting with one seed. CP-SAT and MILP only search if the longest-path schedule is above the bound."""

    start: Solution
    cp_sat: Solution
    milp: Solution | None


def main() -> None:
    rows: list[list[str]] = []
    every: list[Solved] = []
    for setting in SETTINGS:
        solved = [_solve(setting, seed) for seed in SEEDS]
        every += solved
        followed = run(setting, 0, policy=solved[0].cp_sat.starts)
        searched = [one for one in solved if not one.start.proven]
        rows.append(
            [
                name(*setting),
                f"{len(solved) - len(searched)} of {len(solved)}",
                f"{len(searched)}",
                _searches(searched),
                "; ".join(_milp(one.milp) for one in searched if one.milp),
                f"{max(one.cp_sat.makespan / one.cp_sat.bound for one in solved):.5f}",
                f"{followed.makespan / solved[0].cp_sat.makespan:.5f}",
            ]
        )
    columns = [
        "setting",
        "longest path at the bound",
        "left to solve",
        "CP-SAT on these",
        "MILP on HiGHS on these",
        "worst makespan / bound, after CP-SAT",
        "engine following CP-SAT's schedule, seed 0",
    ]
    record("solvers", "python -m bench.decisions solvers", _about(every) + "\n\n" + table(columns, rows))


def _solve(setting: tuple[int, int, bool], seed: int) -> Solved:
    times = paper_setting(*setting, seed)
    start = solve(times, method="longest-path")
    milp = None if start.proven else solve(times, method="milp", seconds=SECONDS)
    return Solved(start, solve(times, method="cp-sat", seconds=SECONDS), milp)


def _about(every: Sequence[Solved]) -> str:
    searched = [one for one in every if not one.start.proven]
    improved = sum(shorter(one.cp_sat, one.start) for one in searched)
    proven = sum(one.cp_sat.proven for one in searched)
    return (
        "## Exact solvers (section 5.4 of the model-hopper paper)\n\n"
        f"{SECONDS} s limit, {len(SETTINGS)} settings with {len(SEEDS)} seeds each. Solvers begin with the "
        "longest-path schedule and return it at once if it meets the lower bound, which proves it optimal. It does "
        f"so in **{len(every) - len(searched)} of {len(every)}** cases: no solver runs there, and they say nothing "
        f"about solvers. **{len(searched)}** is left to solve: CP-SAT found a shorter schedule in {improved} and "
        f"proved optimality in {proven}. These settings are too easy to compare solvers; Taillard's instances, "
        "below, are not. The paper's solver, Gurobi, had 5 minutes."
    )


def _searches(searched: Sequence[Solved]) -> str:
    return "; ".join(
        f"{one.start.makespan / one.start.bound:.5f} to {one.cp_sat.makespan / one.cp_sat.bound:.5f}, "
        f"{_proof(one.cp_sat)}, {one.cp_sat.seconds:.1f} s"
        for one in searched
    )


def _milp(solution: Solution) -> str:
    return f"{solution.makespan / solution.bound:.5f}, {_proof(solution)}, {solution.seconds:.1f} s"


def _proof(solution: Solution) -> str:
    return "proven" if solution.proven else "not proven"
