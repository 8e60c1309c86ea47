"""W1 with Hoptree: ``python -m bench.cluster.contestants.hoptree_w1 DATA OUT [ADDRESS]``; without one, local."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import hoptree as ht
from bench.speed.contestants.hoptree_study import leave, study
from bench.speed.settings import WORKERS


def main(data: Path, out: Path, address: str = "") -> None:
    w1 = study(data, out)
    backend = ht.Ray(address=address) if address else "local"
    began = time.perf_counter()
    results = w1.run(workers=WORKERS, backend=backend)
    seconds = time.perf_counter() - began
    leave(out, results, run=seconds, bytes_between_nodes=results.savings.bytes_between_nodes)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
