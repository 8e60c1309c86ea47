"""Run all parts, or those named: `python -m bench.decisions [open-shop] [solvers] [stage-trees] [orders]
[costs]`.
"""

from __future__ import annotations

import sys

from bench.decisions import costs, open_shop, orders, solvers, stage_trees

PARTS = {
    "open-shop": open_shop.main,
    "orders": orders.main,
    "stage-trees": stage_trees.main,
    "solvers": solvers.main,
    "costs": costs.main,
}

for name in sys.argv[1:] or PARTS:
    PARTS[name]()
