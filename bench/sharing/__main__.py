"""Run all parts, or those named: ``python -m bench.sharing [--repeats 3] [--quick] [--only NAME]…``.

NAME is a case (sha, asha, asha-stop, grid-3, grid-2) or a set of studies (paper, overlapping). Figures go to
bench/RESULTS.md, except those of fewer than three repeats, of some parts only, or with ``--quick``: the same trials
on so few images that it shows whether all works, not what is saved.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.results import record
from bench.sharing import race, report
from bench.sharing.spaces import CASES, SETS
from bench.speed.measure import measure

ENOUGH = 3  # repeats whose medians are written down
FULL = (1000, 250)  # images to train on, and to evaluate on
QUICK = (128, 64)


def main() -> None:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what runs is ended and removed
    rows, valid = QUICK if arguments.quick else FULL
    named = arguments.only or [*CASES, *SETS]
    general = report.about(rows, valid, arguments.repeats)
    worth_it = arguments.repeats >= ENOUGH and not arguments.only and not arguments.quick
    with TemporaryDirectory(prefix="hoptree-sharing-") as temporary:
        folder = Path(temporary)
        measure("bench.sharing.data", folder / "data", rows, valid, log=folder / "log")
        setting = race.Setting(folder / "data", folder, arguments.repeats)
        singles = {name: race.single(name, setting) for name in CASES if name in named}
        _tell("sharing-single", report.single(singles, general), arguments.repeats, worth_it, bool(singles))
        severals = {name: race.several(name, setting) for name in SETS if name in named}
        _tell("sharing-several", report.several(severals, general), arguments.repeats, worth_it, bool(severals))


def _tell(section: str, text: str, repeats: int, worth_it: bool, measured: bool) -> None:
    if measured and worth_it:
        record(section, f"python -m bench.sharing --repeats {repeats}", text)
    elif measured:
        print(text, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.sharing", description=__doc__)
    parser.add_argument("--repeats", type=int, default=ENOUGH)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", default=[], choices=[*CASES, *SETS], metavar="NAME")
    arguments = parser.parse_args()
    if arguments.repeats < 1:
        parser.error(f"--repeats {arguments.repeats}: expected at least 1")
    return arguments


if __name__ == "__main__":
    main()
