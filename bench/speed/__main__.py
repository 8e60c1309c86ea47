"""Run all parts, or those named: ``python -m bench.speed [--repeats 3] [--only NAME]…``.

NAME is a part (w1, hop, units, start-up) or a contestant of W1 (bare, hoptree, loader, ray, optuna). Figures go to
bench/RESULTS.md, except those of fewer than three repeats or of some contestants only (but bare and hoptree alone).
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from bench.results import record
from bench.speed import report
from bench.speed.measure import measure
from bench.speed.race import CONTESTANTS, prepare, race
from bench.speed.settings import DATASET
from bench.speed.workspace import workspace

ENOUGH = 3  # repeats whose medians are written down


class Request(NamedTuple):
    """What a part is to measure, and a folder for it."""

    folder: Path
    repeats: int
    contestants: list[str]


def main() -> None:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what runs is ended and removed
    contestants = [name for name in CONTESTANTS if name in arguments.only] or list(CONTESTANTS)
    parts = [name for name in PARTS if name in arguments.only] or (["w1"] if arguments.only else list(PARTS))
    with TemporaryDirectory(prefix="hoptree-speed-") as folder:
        for part in parts:
            print(f"{part} …", file=sys.stderr, flush=True)
            text = PARTS[part](Request(Path(folder), arguments.repeats, contestants))
            section = _section(part, contestants)
            if arguments.repeats >= ENOUGH and section:
                record(section, " ".join(["python -m bench.speed", *sys.argv[1:]]), text)
            else:
                print(text)
            print(flush=True)


def _section(part: str, contestants: list[str]) -> str:
    """Return where in the results a part belongs; empty if it lacks contestants that others are compared with."""
    if part != "w1" or len(contestants) == len(CONTESTANTS):
        return f"speed-{part}"
    return "speed-w1-bound" if contestants == ["bare", "hoptree"] else ""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.speed", description=__doc__)
    parser.add_argument("--repeats", type=int, default=ENOUGH)
    parser.add_argument("--only", action="append", default=[], choices=[*PARTS, *CONTESTANTS], metavar="NAME")
    arguments = parser.parse_args()
    if arguments.repeats < 1:
        parser.error(f"--repeats {arguments.repeats}: expected at least 1")
    return arguments


def _w1(request: Request) -> str:
    return report.w1(race(request.contestants, request.repeats, request.folder), request.repeats)


def _hop(request: Request) -> str:
    return report.hop(_result(request.folder, "bench.speed.hop"))


def _units(request: Request) -> str:
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(request.repeats):
        for workers, values in seconds.items():
            values.append(_result(request.folder, "bench.speed.units", workers))
    return report.overhead(seconds)


def _start_up(request: Request) -> str:
    folder, data = request.folder, request.folder / "data"
    if not (data / DATASET).exists():
        prepare(DATASET, data, folder / "log")
    return report.start_up([_result(folder, "bench.speed.start_up", data) for _ in range(request.repeats)])


def _result(folder: Path, module: str, *arguments: object) -> Any:
    """Run one of our programs, and return the figures it leaves in its folder."""
    with workspace(folder) as out:
        measure(module, out, *arguments, log=folder / "log")
        return json.loads((out / "result.json").read_text())


PARTS: dict[str, Callable[[Request], str]] = {"w1": _w1, "hop": _hop, "units": _units, "start-up": _start_up}

if __name__ == "__main__":
    main()
