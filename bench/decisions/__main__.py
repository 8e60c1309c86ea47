"""Run all parts, or those named: `python -m bench.decisions [open-shop] [solvers] [taillard] [stage-trees]
[policy-factor] [orders] [costs] [joint] [joint-milp] [joint-engine] [hybrid]`.
"""

from __future__ import annotations

import sys

from bench.decisions import (
    costs,
    hybrid,
    joint,
    joint_engine,
    joint_milp,
    open_shop,
    orders,
    policy_factor,
    solve_taillard,
    solvers,
    stage_trees,
)

PARTS = {
    "open-shop": open_shop.main,
    "orders": orders.main,
    "stage-trees": stage_trees.main,
    "policy-factor": policy_factor.main,
    "solvers": solvers.main,
    "taillard": solve_taillard.main,
    "costs": costs.main,
    "joint": joint.main,
    "joint-milp": joint_milp.main,
    "joint-engine": joint_engine.main,
    "hybrid": hybrid.main,
}

for name in sys.argv[1:] or PARTS:
    PARTS[name]()
