"""The campaign: kinds in turn, a run each, and what was found."""

from __future__ import annotations

import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from bench.faults import clocks, clusters, damage, database, full, kills, mixed, stops, takeovers, user_code
from bench.faults.reference import Reference
from bench.faults.run import MEMORY, Finding, Run, StuckError
from bench.results import table

FAMILIES = {
    "kills": kills.KINDS,
    "stops": stops.KINDS,
    "take-overs": takeovers.KINDS,
    "damage": damage.KINDS,
    "full": full.KINDS,
    "database": database.KINDS,
    "clock": clocks.KINDS,
    "Ray": clusters.KINDS,
    "user code": user_code.KINDS,
    "mixed": mixed.KINDS,
}
KINDS = {**{name: kind for kinds in FAMILIES.values() for name, kind in kinds.items()}, **mixed.UNDISTURBED}
DISTURBED = [name for name in KINDS if name not in mixed.UNDISTURBED]
_SHOWN = 5  # findings of a run, as it ends
_SAMPLE = 4  # one in so many runs is verified by training a trial again


class Told(NamedTuple):
    """What one run came to."""

    kind: str
    seed: int
    seconds: float
    drivers: int
    again: int
    refused: bool
    refusals: list[str]
    findings: list[Finding]
    logs: str

    @property
    def command(self) -> str:
        """How to repeat it."""
        return f"python -m bench.faults --kind {self.kind} --seed {self.seed} --runs 1"


class Campaign:
    """Runs in a folder of its own; those that found something stay there."""

    def __init__(self, say: Callable[[str], None] = print, *, keep: bool = False) -> None:
        self._keep = keep
        self.folder = Path(tempfile.mkdtemp(prefix="hoptree-faults-"))
        self._say = say
        self._references: dict[tuple[int, bool], Reference] = {}

    def run(self, kinds: Sequence[str], runs: int, seed: int) -> list[Told]:
        """Do so many runs, of the kinds in turn, with the seeds that follow."""
        found = []
        for number, kind in enumerate(islice(cycle(kinds), runs)):
            found.append(self.one(kind, seed + number))
            told = found[-1]
            end = "FOUND" if told.findings else "refused" if told.refused else "as the reference"
            self._say(
                f"{number + 1}/{runs} {kind} --seed {told.seed}: {end}, {told.drivers} drivers, "
                f"{told.seconds:.1f} s"
            )
            for what, seen in told.findings[:_SHOWN]:
                self._say(f"    {what}: {' '.join(seen.split())}")
            if len(told.findings) > _SHOWN:
                self._say(f"    and {len(told.findings) - _SHOWN} more")
            if told.findings:
                self._say(f"    {told.command}; log: {told.logs}")
        return found

    def one(self, kind: str, seed: int) -> Told:
        """Disturb one run, bring it to its end, and look at it."""
        random = Random(f"{kind} {seed}")
        chosen = KINDS[kind]
        acts = chosen.options.get("acts")
        reference = self.reference(
            chosen.options.get("size", 4096), bool(acts), acts if acts is not None else [user_code.FINE]
        )
        folder = self.folder / f"{kind}-{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        run = Run(folder, random, reference, **chosen.options)
        began = time.monotonic()
        outcomes = {}
        again = 0
        try:
            chosen.disturb(run)
            outcomes = run.finish()
            again = run.again()
            run.check(outcomes, deeply=random.randrange(_SAMPLE) == 0)
        except StuckError as error:
            run.found("stuck", str(error))
        except Exception:  # a bug of the campaign: report it and continue
            run.found("campaign", traceback.format_exc())
        finally:
            run.close()
            clear_memory()
        if not run.findings and not self._keep:
            shutil.rmtree(folder)
        took = time.monotonic() - began
        refused = not run.findings and len(outcomes) < len(run.names)
        return Told(kind, seed, took, len(run.drivers), again, refused, run.refusals, run.findings, str(run.logs))

    def reference(self, size: int, grid: bool, acts: list[str]) -> Reference:
        """Return what is to come out: trained once on one worker, undisturbed, and verified trial by trial."""
        if (size, grid) not in self._references:
            folder = self.folder / f"reference-{size}-{'grid' if grid else 'halving'}"
            options: dict[str, Any] = {"acts": user_code.ALL, "halving": False} if grid else {}
            run = Run(folder, Random(0), Reference([], 0), size=size, nap=0.0, workers=1, tame=True, **options)
            try:
                outcome = run.finish_reference()
                self._references[size, grid] = Reference(outcome, run.units())
            finally:
                run.close()
                clear_memory()
        return self._references[size, grid].of(acts)

    def close(self) -> None:
        """Remove files that are no longer needed."""
        for folder in self.folder.glob("reference-*"):
            shutil.rmtree(folder)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()


def clear_memory() -> None:
    """Remove what a run has left in shared memory, which is this program's own."""
    for path in MEMORY.iterdir():
        if path.is_dir():
            shutil.rmtree(path)


def report(found: Sequence[Told]) -> str:
    """Return the table, and every finding with how to repeat it."""
    rows: list[list[object]] = []
    families = {**FAMILIES, "none": mixed.UNDISTURBED}
    for family, kinds in families.items():
        for kind in kinds:
            mine = [told for told in found if told.kind == kind]
            if mine:
                rows.append([family, kind, *_figures(mine)])
    rows.append(["**all**", "", *_figures(found)])
    columns = [
        "family", "disturbance", "runs", "as the reference", "refused", "drivers", "units again", "findings",
    ]  # fmt: skip
    kinds_found: dict[str, int] = {}
    for told in found:
        for what in {finding.what for finding in told.findings}:
            kinds_found[what] = kinds_found.get(what, 0) + 1
    counts = ", ".join(f"{what} {count}" for what, count in sorted(kinds_found.items())) or "none"
    lines = [
        f"{len(found)} disturbed runs. Runs with findings, by what was found: {counts}. Orphans: "
        f"{sum(_has(told, 'orphan', 'left in memory', 'left in the store') for told in found)}; "
        f"silent differences: {sum(_has(told, 'difference') for told in found)}.",
        "",
        table(columns, rows),
    ]
    return "\n".join([*lines, *_listed(found)])


def _figures(found: Sequence[Told]) -> list[object]:
    clean = [told for told in found if not told.findings]
    return [
        len(found),
        sum(not told.refused for told in clean),
        sum(told.refused for told in clean),
        f"{sum(told.drivers for told in found) / len(found):.1f}",
        f"{sum(told.again for told in found) / len(found):.1f}",
        len(found) - len(clean),
    ]


def _has(told: Told, *what: str) -> bool:
    return any(finding.what in what for finding in told.findings)


def _listed(found: Sequence[Told]) -> list[str]:
    lines = []
    for told in found:
        for what, seen in {finding.what: finding for finding in reversed(told.findings)}.values():
            text = " ".join(seen.split())[:240].replace("|", "/").replace("`", "'")
            lines.append(f"- `{told.command}`: {what}: {text}")
    return ["", "Findings:", "", *lines] if lines else []
