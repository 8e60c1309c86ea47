"""A known landscape: learning curves with a known optimum, for our searches and for the reference ones.

A config has a level that it falls towards, and a pace. Small learning rates are slow at first and better in the
end, so a search that cuts too early is punished. Evaluations are noisy; the noise follows from config, epoch and
seed, so that both sides see the same. In the second landscape curves cross: the better a config, the slower.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import optuna

from hoptree.core.lineage import Values
from hoptree.forecast.simulation import Simulation, simulate
from hoptree.search import Goal, Procedure
from hoptree.search.sampling import make_sampler
from hoptree.search.streams import share
from hoptree.search.value_kinds import choice, log, uniform
from hoptree.simulator import Cluster, Workload
from hoptree.simulator.workload import Landscape

LOSS = Goal("loss", maximize=False)
SPACE = {
    "lr": log(1e-4, 1.0),
    "momentum": uniform(0.0, 1.0),
    "dropout": uniform(0.0, 0.8),
    "depth": choice(1, 2, 3, 4),
}
NOISE = 0.01
Shape = Callable[[dict[str, Any], int], float]


def level(config: dict[str, Any]) -> float:
    """Return the loss that a config would reach in the end; 0 is the best."""
    rate = math.log10(config["lr"]) + 2.2
    return (
        0.15 * rate**2
        + 0.6 * (config["momentum"] - 0.7) ** 2
        + 0.5 * (config["dropout"] - 0.25) ** 2
        + 0.04 * abs(config["depth"] - 3)
    )


def curve(config: dict[str, Any], epoch: int) -> float:
    """Return the loss after some epochs, without noise."""
    pace = 0.5 + 0.12 * (math.log10(config["lr"]) + 4)  # from 0.5 for small learning rates to about 1
    return level(config) + (1 + epoch) ** -pace


def crossing(config: dict[str, Any], epoch: int) -> float:
    """Return a loss that starts equal for all and falls more slowly for better configs, so that curves cross."""
    slow = 2 + 8 * math.exp(-4 * level(config))
    return level(config) + (1.2 - level(config)) * math.exp(-epoch / slow)


def loss(config: dict[str, Any], epoch: int, seed: int, shape: Shape = curve) -> float:
    """Return the metrics of an evaluation."""
    parts = (seed, sorted(config.items()), epoch)
    normal = math.sqrt(-2 * math.log(1 - share("radius", *parts))) * math.cos(math.tau * share("angle", *parts))
    return shape(config, epoch) + NOISE * normal


class Found:
    """The result of a search: the config that it recommends, its true loss, and the epochs trained."""

    def __init__(self, config: dict[str, Any], epochs: float) -> None:
        self.config = config
        self.level = level(config)
        self.epochs = epochs


def ours(procedure: Procedure, seed: int, *, workers: int = 4, shape: Shape = curve) -> Found:
    """Run a procedure on the simulated backend, and return the complete trial with the best last report."""

    def metrics(values: Values, epoch: int, key: str) -> dict[str, float]:
        return {"loss": loss(values.constants(), epoch, seed, shape)}

    result = simulate(
        Workload(partitions=1),
        Cluster(workers=workers, noise=0.2),
        search=procedure.search(SPACE, LOSS, seed),
        landscape=Landscape(lambda _: 1.0, metrics),
        seed=seed,
    )
    return Found(best(result, seed, shape), result.units)


def best(result: Simulation, seed: int, shape: Shape = curve) -> dict[str, Any]:
    """Return the config that a search recommends."""
    complete = [trial for trial in result.engine.trials.values() if trial.ending == "complete"]
    found = min(complete, key=lambda t: (loss(dict(t.history[-1].config), t.until, seed, shape), t.number))
    return dict(found.history[-1].config)


def reference(
    seed: int,
    budget: float,
    epochs: int,
    *,
    sampler: Callable[[int], optuna.samplers.BaseSampler] | None = None,
    pruner: optuna.pruners.BasePruner | None = None,
    shape: Shape = curve,
) -> Found:
    """Run Optuna, one trial after the other, until as many epochs are spent; the best of the whole trials counts.

    Without a ``sampler`` it tries the configs that ours draw, in the same order: then only the procedures differ.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    source = make_sampler("random", SPACE, seed)
    study = optuna.create_study(
        sampler=sampler(seed) if sampler else None,
        pruner=pruner or optuna.pruners.NopPruner(),
        study_name=f"{seed}",
    )
    spent = 0
    whole: list[tuple[float, dict[str, Any]]] = []
    while spent < budget:
        if sampler is None:
            study.enqueue_trial(source.ask() or {})
        trial = study.ask()
        config = {
            "lr": trial.suggest_float("lr", 1e-4, 1.0, log=True),
            "momentum": trial.suggest_float("momentum", 0.0, 1.0),
            "dropout": trial.suggest_float("dropout", 0.0, 0.8),
            "depth": trial.suggest_categorical("depth", [1, 2, 3, 4]),
        }
        pruned = False
        value = math.inf
        for epoch in range(1, epochs + 1):
            spent += 1
            value = loss(config, epoch, seed, shape)
            trial.report(value, epoch)
            if epoch < epochs and trial.should_prune():
                pruned = True
                break
        study.tell(trial, None if pruned else value, state=_state(pruned))
        if not pruned:
            whole.append((value, config))
    return Found(min(whole, key=lambda pair: pair[0])[1], spent)


def _state(pruned: bool) -> optuna.trial.TrialState:
    return optuna.trial.TrialState.PRUNED if pruned else optuna.trial.TrialState.COMPLETE
