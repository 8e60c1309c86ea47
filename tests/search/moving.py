"""A landscape with states, for population based training: the best learning rate falls while a model learns.

No single learning rate is good all the time, so a config has to change on the way, and what a model has learned so
far is in its state.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

from hoptree.core.actions import RunUnit
from hoptree.core.lineage import Values
from hoptree.core.steps import Step
from hoptree.forecast.simulation import simulate
from hoptree.search import PBT, Procedure
from hoptree.search.sampling import make_sampler
from hoptree.search.streams import share
from hoptree.search.value_kinds import log
from hoptree.simulator import Cluster, Workload
from hoptree.simulator.workload import Landscape
from tests.search.landscape import LOSS

SPACE = {"lr": log(1e-4, 1.0)}
EPOCHS = 24
NOISE = 0.02


def learned(before: float, rate: float, epoch: int) -> float:
    """Return a model's skill after one more epoch: up to one more, for the best rate at that epoch."""
    target = -0.5 - 2.5 * epoch / EPOCHS  # of its logarithm: from 0.3 to 0.001
    return before + math.exp(-(((math.log10(rate) - target) / 0.6) ** 2))


def missing(skill: float) -> float:
    """Return the loss: the fraction of the possible skill that is missing."""
    return 1 - skill / EPOCHS


class Skills:
    """Follows every lineage as it is trained: a watch for the engine, and the metrics of the simulated backend."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._skills: dict[tuple[int, int], float] = {}
        self._nodes: dict[str, int] = {}

    def see(self, step: Step) -> None:
        for action in step.actions:
            if isinstance(action, RunUnit):
                before = self._skills[action.source, action.unit] if action.unit else 0.0
                rate = action.values.constants()["lr"]
                assert isinstance(rate, float)
                self._skills[action.node, action.unit + 1] = learned(before, rate, action.unit)
                self._nodes[action.key] = action.node

    def metrics(self, values: Values, epoch: int, key: str) -> dict[str, float]:
        skill = self._skills[self._nodes[key], epoch]
        return {"loss": missing(skill) + NOISE * share(self._seed, key, epoch), "skill": skill}


def ours(procedure: Procedure, seed: int) -> tuple[float, int]:
    """Return the true loss of the best complete trial, and the epochs that were trained."""
    skills = Skills(seed)
    result = simulate(
        Workload(partitions=1),
        Cluster(workers=4, noise=0.2),
        search=procedure.search(SPACE, LOSS, seed),
        landscape=Landscape(lambda _: 1.0, skills.metrics),
        watches=[skills.see],
        seed=seed,
    )
    reports = []
    for trial in result.engine.trials.values():
        if trial.ending == "complete":
            assert trial.final is not None
            node, unit = trial.final
            metrics = node.reports[unit]
            reports.append((metrics["loss"], trial.number, metrics["skill"]))
    return missing(min(reports)[2]), result.units


def textbook(procedure: PBT, seed: int) -> tuple[float, int]:
    """Return the same of algorithm 1 of the paper, as short as it can be written: truncation, then perturbation.

    It begins with the population that ours draws.
    """
    random = Random(seed)
    sampler = make_sampler("random", SPACE, seed)
    members: list[dict[str, Any]] = [
        {"rate": (sampler.ask() or {})["lr"], "skill": 0.0} for _ in range(procedure.population)
    ]
    spent = 0
    cut = max(1, int(procedure.population * procedure.quantile))
    for epoch in range(procedure.epochs):
        for member in members:
            member["skill"] = learned(member["skill"], member["rate"], epoch)
            spent += 1
        if (epoch + 1) % procedure.interval == 0 and epoch + 1 < procedure.epochs:
            members.sort(key=lambda member: missing(member["skill"]) + NOISE * random.random())
            for index in range(cut):
                source = random.choice(members[:cut])
                rate = source["rate"] * random.choice(procedure.factors)
                if random.random() < procedure.resample:
                    rate = 10 ** random.uniform(-4, 0)
                members[-1 - index] = {"rate": min(max(rate, 1e-4), 1.0), "skill": source["skill"]}
    best = min(members, key=lambda member: missing(member["skill"]) + NOISE * random.random())
    return missing(best["skill"]), spent
