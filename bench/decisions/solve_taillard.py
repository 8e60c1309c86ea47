"""Heuristics and exact solvers on Taillard's open shops, where a solver has something to solve."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from statistics import mean
from typing import NamedTuple

from bench.decisions.taillard import SEEDS, instance
from bench.results import record, spread, table
from hoptree.optimize import Solution, lower_bound, solve
from hoptree.optimize.grid import TOLERANCE

SECONDS = 10
RANDOM_SEEDS = range(5)
MILP_NUMBERS = (1, 2)


class Solved(NamedTuple):
    """One instance, by every method."""

    bound: float  # the largest load of a worker or length of a config
    random: list[Solution]
    vector: Solution
    longest_path: Solution
    cp_sat: Solution
    milp: Solution | None


def main() -> None:
    began, processor = time.monotonic(), processor_seconds()
    by_size = {size: [_solve(size, number) for number in range(1, len(SEEDS[size]) + 1)] for size in SEEDS}
    wall, processor = time.monotonic() - began, processor_seconds() - processor
    record(
        "taillard",
        "python -m bench.decisions taillard",
        "\n\n".join(_text(by_size, wall, processor)).rstrip() + "\n",
    )


def _solve(size: int, number: int) -> Solved:
    times = instance(size, number)
    return Solved(
        lower_bound(times),
        [solve(times, method="random", seed=seed) for seed in RANDOM_SEEDS],
        solve(times, method="vector"),
        solve(times, method="longest-path"),
        solve(times, method="cp-sat", seconds=SECONDS),
        solve(times, method="milp", seconds=SECONDS) if number in MILP_NUMBERS else None,
    )


def _text(by_size: dict[int, list[Solved]], wall: float, processor: float) -> Iterable[str]:
    every = [solved for of_size in by_size.values() for solved in of_size]
    met, improved = _count(every, _starts_at_bound), _count(every, _cp_sat_improved)
    proven, above = _count(every, lambda solved: solved.cp_sat.proven), _count(every, _above_bound)
    yield "## Open shop: Taillard's instances"
    yield (
        f"{len(every)} instances, ten of each size, from the generator and the seeds of Taillard (1993): jobs are "
        "configs, machines are workers, and a unit takes 1 to 99, drawn anew for each config and worker. The bound "
        "is the largest load of a worker or the longest config, as in section 5.4. Makespan over it: mean (least "
        f"to greatest); random: the mean of {len(RANDOM_SEEDS)} seeds. All methods are those of "
        "`hoptree.optimize.solve`. Our simulator cannot express such times (there a unit takes the config's cost "
        "over the worker's speed), so the engine is not in this table."
    )
    yield (
        f"The longest-path schedule meets the bound in **{met} of {len(every)}** instances, so a solver has "
        f"something to solve in {len(every) - met}. CP-SAT with {SECONDS} s for each found a shorter schedule in "
        f"**{improved}** and proved optimality in **{proven}**; in {above} of these the optimum is above the "
        f"bound. Time limits are of the clock: the program got {processor:.0f} s of processor time in {wall:.0f} "
        "s, CP-SAT's two threads and HiGHS included. With more, more is proven."
    )
    columns = [
        "size",
        "random",
        "vector",
        "longest path",
        "CP-SAT",
        "longest path at the bound",
        "CP-SAT shorter",
        "CP-SAT proved the optimum",
        "of these above the bound",
        "CP-SAT, mean time",
    ]
    yield table(columns, [_row(f"{size} x {size}", of_size) for size, of_size in by_size.items()])
    yield (
        "The mixed-integer program of the model-hopper paper on HiGHS, the first "
        f"{len(MILP_NUMBERS)} instances of each size, {SECONDS} s each; CP-SAT on the same ones beside it."
    )
    columns = ["size", "longest path", "MILP", "CP-SAT", "MILP shorter", "MILP proved the optimum"]
    yield table(columns, [_milp_row(f"{size} x {size}", of_size) for size, of_size in by_size.items()])


def _row(name: str, of_size: Sequence[Solved]) -> list[str]:
    def over(makespan: Callable[[Solved], float]) -> str:
        return spread([makespan(solved) / solved.bound for solved in of_size], 3)

    return [
        name,
        over(lambda solved: mean(solution.makespan for solution in solved.random)),
        over(lambda solved: solved.vector.makespan),
        over(lambda solved: solved.longest_path.makespan),
        over(lambda solved: solved.cp_sat.makespan),
        f"{_count(of_size, _starts_at_bound)} of {len(of_size)}",
        f"{_count(of_size, _cp_sat_improved)} of {len(of_size)}",
        f"{_count(of_size, lambda solved: solved.cp_sat.proven)} of {len(of_size)}",
        f"{_count(of_size, _above_bound)}",
        f"{mean(solved.cp_sat.seconds for solved in of_size):.1f} s",
    ]


def _milp_row(name: str, of_size: Sequence[Solved]) -> list[str]:
    tried = [(solved, solved.milp) for solved in of_size if solved.milp is not None]
    return [
        name,
        spread([solved.longest_path.makespan / solved.bound for solved, _ in tried], 3),
        spread([milp.makespan / solved.bound for solved, milp in tried], 3),
        spread([solved.cp_sat.makespan / solved.bound for solved, _ in tried], 3),
        f"{sum(shorter(milp, solved.longest_path) for solved, milp in tried)} of {len(tried)}",
        f"{sum(milp.proven for _, milp in tried)} of {len(tried)}",
    ]


def shorter(one: Solution, other: Solution) -> bool:
    """Return whether a makespan is really shorter, not by rounding."""
    return one.makespan < other.makespan * (1 - TOLERANCE)


def _starts_at_bound(solved: Solved) -> bool:
    return solved.longest_path.proven


def _cp_sat_improved(solved: Solved) -> bool:
    return shorter(solved.cp_sat, solved.longest_path)


def _above_bound(solved: Solved) -> bool:
    return solved.cp_sat.proven and solved.cp_sat.makespan > solved.bound * (1 + TOLERANCE)


def _count(every: Iterable[Solved], holds: Callable[[Solved], bool]) -> int:
    return sum(map(holds, every))


def processor_seconds() -> float:
    """Return the processor time of this program and of the processes that it has waited for."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system
