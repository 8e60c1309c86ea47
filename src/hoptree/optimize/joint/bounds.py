"""Lower bounds on the makespan of the joint problem.

Give a weight to every config and every node, 1 in all. The load of a config is the time of its visits; the load of
a node is the device time of its visits over its devices. No load exceeds the makespan, since a config makes one
visit at a time and a visit with w devices holds w of them. So neither does the weighted mean of the loads, and
choosing the option of every visit that makes this mean least gives a bound that holds for every choice of options.
"""

from math import exp, fsum

from hoptree.optimize.joint.problem import JointProblem, Option

ROUNDS = 300
STEP = 0.5
"""Larger steps find good weights faster and then miss the best ones."""


def joint_bound(problem: JointProblem) -> float:
    """Return the best bound that was found: with the weight on one config or one node, or shared between them.

    Multiplicative weights: a config or node with a large load gets more weight in the next round. Every round gives
    a valid bound, as the weights do not have to be optimal.
    """
    configs = len(problem.options)
    shares = [0.0] * (configs + len(problem.devices))
    best = load_bound(problem)
    for done in range(ROUNDS):
        top = max(shares)
        raw = [exp(share - top) for share in shares]
        total = sum(raw)
        weights = [weight / total for weight in raw]
        loads = _best_loads(problem, weights[:configs], weights[configs:])
        best = max(best, fsum(weight * load for weight, load in zip(weights, loads, strict=True)))
        largest = max(loads)
        if largest <= best:
            break
        pace = STEP * 10 / (1 + done) ** 0.5
        shares = [share + pace * (load / largest - 1) for share, load in zip(shares, loads, strict=True)]
    return best


def load_bound(problem: JointProblem) -> float:
    """Return the bound with all weight on one config or one node, the largest of these.

    A config cannot be faster than its fastest visits one after another. A node cannot be faster than the least
    device time of its visits, shared by all its devices.
    """
    by_config = [fsum(options[-1].seconds for options in row) for row in problem.options]
    by_node = [
        fsum(min(width * seconds for width, seconds in row[node]) for row in problem.options) / devices
        for node, devices in enumerate(problem.devices)
    ]
    return max(*by_config, *by_node)


def _best_loads(problem: JointProblem, of_configs: list[float], of_nodes: list[float]) -> list[float]:
    """Choose the options with the least weighted mean; return the loads of the configs, then of the nodes."""
    config_loads = [0.0] * len(of_configs)
    node_loads = [0.0] * len(of_nodes)
    for config, row in enumerate(problem.options):
        for node, options in enumerate(row):
            devices = problem.devices[node]
            width, seconds = _cheapest(options, of_configs[config], of_nodes[node] / devices)
            config_loads[config] += seconds
            node_loads[node] += width * seconds / devices
    return config_loads + node_loads


def _cheapest(options: tuple[Option, ...], per_second: float, per_device_second: float) -> Option:
    return min(options, key=lambda option: (per_second + per_device_second * option[0]) * option[1])
