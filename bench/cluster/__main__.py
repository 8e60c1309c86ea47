"""Run all parts, or those named: ``python -m bench.cluster [--repeats 3] [--quick] [--only NAME]…``.

NAME is a part: w1, nodes (data held, and bytes between nodes), hop, store. Figures go to bench/RESULTS.md, except
those of fewer than three repeats or with ``--quick``: less data and fewer nodes, to see whether all works. All
clusters are on this machine and closed to others.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench.cluster.closed import close_doors

close_doors()  # before anything imports Ray

from bench.cluster import hop, nodes, report, store_use, w1  # noqa: E402
from bench.results import record  # noqa: E402

ENOUGH = 3  # repeats whose medians are written down


class Request(NamedTuple):
    """A folder for a part, and how thoroughly it is to measure."""

    folder: Path
    repeats: int
    quick: bool


def main() -> None:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what runs is ended and removed
    repeats = 1 if arguments.quick else arguments.repeats
    for part in arguments.only or PARTS:
        print(f"{part} …", file=sys.stderr, flush=True)
        with TemporaryDirectory(prefix="hoptree-cluster-", ignore_cleanup_errors=True) as folder:
            texts = PARTS[part](Request(Path(folder), repeats, arguments.quick))
        for section, text in texts.items():
            if repeats >= ENOUGH:
                record(f"cluster-{section}", f"python -m bench.cluster --repeats {repeats}", text)
            else:
                print(text)
            print(flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--repeats", type=int, default=ENOUGH)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", default=[], choices=list(PARTS), metavar="NAME")
    arguments = parser.parse_args()
    if arguments.repeats < 1:
        parser.error(f"--repeats {arguments.repeats}: expected at least 1")
    return arguments


def _w1(request: Request) -> dict[str, str]:
    return {"w1": report.w1(w1.measure(*request), request.repeats)}


def _nodes(request: Request) -> dict[str, str]:
    found = nodes.measure(request.folder, request.quick)
    return {"held": report.held(found), "traffic": report.traffic(found)}


def _hop(request: Request) -> dict[str, str]:
    return {"hop": report.hop(hop.measure(request.folder, request.quick))}


def _store(request: Request) -> dict[str, str]:
    return {"store": report.store(store_use.measure(request.folder, request.quick))}


PARTS: Mapping[str, Callable[[Request], dict[str, str]]] = {
    "w1": _w1,
    "nodes": _nodes,
    "hop": _hop,
    "store": _store,
}

if __name__ == "__main__":
    main()
