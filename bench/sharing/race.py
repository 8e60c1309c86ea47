"""The race: every contestant once in every repeat, in rotating order, each in fresh processes."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.sharing.contestants.outcome import Outcome, read
from bench.sharing.contestants.several import studies
from bench.sharing.spaces import CASES, COUNTS, Case
from bench.speed.measure import Measured, measure
from bench.speed.race import RAY
from bench.speed.workspace import workspace


class Run(NamedTuple):
    """One run of a contestant; several studies have an outcome each, unless they were driven together."""

    measured: Measured
    outcomes: list[Outcome]

    def seconds(self, count: int | None = None) -> float:
        """Return CPU seconds of training, of all studies or of the first ones."""
        return sum(outcome.seconds for outcome in self.outcomes[:count])

    def epochs(self, count: int | None = None) -> float:
        """Return the epochs that were trained for all studies or for the first ones."""
        return sum(outcome.epochs for outcome in self.outcomes[:count])


SHARE, ALONE, RAY_TUNE = "Hoptree", "Hoptree, `share=False`", "Ray Tune"
Runs = Mapping[str, Sequence[Run]]  # by contestant and repeat


class Setting(NamedTuple):
    """Where the data is, a folder for what is written, and how often to measure."""

    data: Path
    folder: Path
    repeats: int


def single(name: str, setting: Setting) -> Runs:
    """Race one case, and see that sharing changed nothing."""
    case = CASES[name]
    programs = {
        SHARE: ("hoptree_study", name, "share"),
        ALONE: ("hoptree_study", name, "alone"),
        **({RAY_TUNE: ("ray_tune", name)} if case.in_ray else {}),
    }
    runs = _race(programs, setting)
    _agree(case, runs)
    return runs


def several(name: str, setting: Setting) -> Runs:
    """Race the ways to run several studies; whichever it is, the same comes out."""
    most = max(COUNTS)
    programs = {
        **{mode: ("several", name, mode, most) for mode in ("unshared", "alone", "after")},
        **{f"together {count}": ("several", name, "together", count) for count in COUNTS},
    }
    runs = _race(programs, setting)
    prints, curves = _found(runs["unshared"][0])
    for mode, several_runs in runs.items():
        for run in several_runs:
            found = _found(run)
            assert found == (prints[: len(found[0])], curves[: len(found[1])]), f"{mode} trained something else"
    return runs


def _agree(case: Case, runs: Runs) -> None:
    """In a synchronous search every trial has the same curve and the same fingerprint, shared or alone."""
    if case.synchronous:
        expected = _found(runs[ALONE][0])
        for run in (*runs[ALONE], *runs[SHARE]):
            assert _found(run) == expected, f"{case.title}: sharing changed what was trained"


def _found(run: Run) -> tuple[list[Any], list[Any]]:
    prints = [study for outcome in run.outcomes for study in outcome.prints]
    return prints, [study for outcome in run.outcomes for study in outcome.curves]


def _race(programs: Mapping[str, Sequence[object]], setting: Setting) -> Runs:
    runs: dict[str, list[Run]] = {title: [] for title in programs}
    titles = list(programs)
    for repeat in range(setting.repeats):
        start = repeat % len(titles)
        for title in (*titles[start:], *titles[:start]):
            run = _run(programs[title], setting)
            runs[title].append(run)
            print(
                f"repeat {repeat + 1}, {title}: {run.epochs():g} epochs, {run.seconds():.1f} s of training, "
                f"{run.measured.cpu:.1f} s in all, {run.measured.wall:.1f} s of wall time",
                file=sys.stderr,
                flush=True,
            )
    return runs


def _run(program: Sequence[object], setting: Setting) -> Run:
    module, *arguments = program
    env = {**RAY, "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    log = setting.folder / "log"
    with workspace(setting.folder, studies()) as out:
        name = f"bench.sharing.contestants.{module}"
        measured = measure(name, setting.data, out, *arguments, log=log, env=env)
        return Run(measured, read(out))
