"""The mixed-integer program of the thesis (equations 4.1 to 4.14) on HiGHS, on the problems of figures 4.1 to 4.3.

It takes up to 50 minutes: 300 s for each problem, as in the thesis.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from bench.decisions.joint import SECONDS
from bench.decisions.joint_figures import FIGURES, SCALINGS, Figure
from bench.decisions.solve_taillard import processor_seconds
from bench.results import record, table
from hoptree.optimize import JointSolution, solve_joint, verify_joint
from hoptree.optimize.grid import TOLERANCE
from hoptree.optimize.joint.bounds import load_bound
from hoptree.optimize.joint.problem import parse_joint

MILP_SECONDS = 300
SEED = 1
"""With seed 0, the randomized schedule that the MILP starts with is optimal in more of the problems."""


class MilpCase(NamedTuple):
    """One problem."""

    figure: Figure
    scaling: str
    bound: float  # the largest load of a task or node
    start: JointSolution
    milp: JointSolution
    dry_run: JointSolution
    auto: JointSolution


def main() -> None:
    began, processor = time.monotonic(), processor_seconds()
    cases = [solve_case(figure, scaling) for figure, scaling in product(FIGURES, SCALINGS)]
    wall, processor = time.monotonic() - began, processor_seconds() - processor
    record("joint-milp", "python -m bench.decisions joint-milp", text(cases, wall, processor))


def solve_case(figure: Figure, scaling: str) -> MilpCase:
    times, devices = figure.times(scaling, SEED), figure.devices

    def joint(method: str, seconds: float) -> JointSolution:
        solution = solve_joint(times, devices, method=method, seconds=seconds, seed=SEED)  # type: ignore[arg-type]
        verify_joint(times, devices, solution)
        return solution

    bound = load_bound(parse_joint(times, devices))
    ours = joint("dry-run", SECONDS), joint("auto", SECONDS)
    return MilpCase(figure, scaling, bound, joint("random", SECONDS), joint("milp", MILP_SECONDS), *ours)


def text(cases: Sequence[MilpCase], wall: float, processor: float) -> str:
    searched = [case for case in cases if not case.start.proven]
    worse = sum(case.auto.makespan > case.milp.makespan * (1 + TOLERANCE) for case in cases)
    quick = sum(case.dry_run.makespan > case.milp.makespan * (1 + TOLERANCE) for case in cases)
    about = (
        "## The MILP of the thesis on HiGHS (equations 4.1 to 4.14)\n\n"
        f"Seed {SEED}, {MILP_SECONDS} s for each problem, as Gurobi had in the thesis. It starts with the "
        "randomized schedule on whole nodes (section 4.2.2) and returns that at once if it meets the lower bound: "
        f"it searched in {len(searched)} of {len(cases)} problems. Makespan over the largest load of a task or "
        f"node. The dry run with CP-SAT ({SECONDS} s) is worse than the MILP in **{worse} of {len(cases)}**, the "
        f"dry run alone in {quick}. Time limits are of the clock: the program got {processor:.0f} s of processor "
        f"time in {wall:.0f} s, HiGHS included."
    )
    columns = [
        "figure, scaling",
        "whole nodes at random",
        "MILP",
        "dry run",
        "dry run, then CP-SAT",
        "MILP proven, after",
    ]
    rows = [
        [
            f"{case.figure.name}, {case.scaling}",
            *(f"{solution.makespan / case.bound:.3f}" for solution in case[3:]),
            f"{'yes' if case.milp.proven else 'no'}, {case.milp.seconds:.1f} s",
        ]
        for case in cases
    ]
    return about + "\n\n" + table(columns, rows)
