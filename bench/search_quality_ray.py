"""Ray Tune's schedulers on the landscapes: they decide, and get the results as in a cluster.

A run of PBT with 20 members in a local Ray had not ended after 280 seconds on the two cores of this machine; what
is compared here is what the schedulers decide, not how long Ray takes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import AsyncHyperBandScheduler, MedianStoppingRule, PopulationBasedTraining
from tests.search import landscape, moving
from tests.search.landscape import Found

from hoptree.search import PBT
from hoptree.search.sampling import make_sampler

EPOCHS = 27


def rays(make: Callable[[], Any], concurrent: int = 8) -> Callable[[int, float], Found]:
    """Return Ray's scheduler with so many trials under way, each an epoch further in turn."""

    def run(seed: int, budget: float) -> Found:
        scheduler, source = make(), make_sampler("random", landscape.SPACE, seed)
        controller = SimpleNamespace(get_live_trials=list)
        running: list[Hashed] = []
        spent, started = 0, 0
        whole: list[tuple[float, dict[str, Any]]] = []
        while running or spent < budget:
            while len(running) < concurrent and spent < budget:
                trial = Hashed({"trial_id": str(started), "config": source.ask(), "epoch": 0})
                scheduler.on_trial_add(controller, trial)
                running.append(trial)
                started += 1
            for trial in list(running):
                trial.epoch += 1
                spent += 1
                value = landscape.loss(trial.config, trial.epoch, seed)
                result = {"training_iteration": trial.epoch, "loss": value}
                verdict = scheduler.on_trial_result(controller, trial, result)
                if trial.epoch == EPOCHS:
                    whole.append((value, trial.config))
                if trial.epoch == EPOCHS or verdict == "STOP":
                    running.remove(trial)
        return Found(min(whole, key=lambda pair: pair[0])[1], spent)

    return run


class Hashed(SimpleNamespace):
    """What Ray's schedulers see of a trial."""

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__(**fields)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def asha_of_ray() -> Any:
    return AsyncHyperBandScheduler(
        time_attr="training_iteration", metric="loss", mode="min", max_t=EPOCHS, grace_period=1, reduction_factor=3
    )


def median_of_ray() -> Any:
    return MedianStoppingRule(
        time_attr="training_iteration", metric="loss", mode="min", grace_period=1, min_samples_required=5
    )


class Member(Hashed):
    """A member of a population: paused whenever the scheduler sees it, as Ray's synchronous mode has it."""

    status = Trial.PAUSED
    experiment_tag = ""

    def __init__(self, rate: float) -> None:
        manager = SimpleNamespace(
            checkpoint_config=SimpleNamespace(num_to_keep=None), _latest_checkpoint_result=None
        )
        super().__init__({"trial_id": f"{rate}", "config": {"lr": rate}, "skill": 0.0, "evaluated_params": {}})
        self.run_metadata = SimpleNamespace(checkpoint_manager=manager)
        self.temporary_state = SimpleNamespace(saving_to=None)

    @property
    def checkpoint(self) -> list[float]:
        """The state from which another member continues."""
        return [self.skill]

    def is_finished(self) -> bool:
        """Never: the loop below ends them all at once."""
        return False

    def set_experiment_tag(self, tag: str) -> None:
        """Names are of no interest here."""

    def set_config(self, config: dict[str, Any]) -> None:
        """Take a config; Ray's factors may lead out of the range."""
        self.config = {"lr": min(max(config["lr"], 1e-4), 1.0)}


def rays_population(procedure: PBT, seed: int) -> tuple[float, int]:
    random.seed(seed)
    np.random.seed(seed)
    sampler = make_sampler("random", moving.SPACE, seed)
    members = [Member((sampler.ask() or {})["lr"]) for _ in range(procedure.population)]
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        metric="loss",
        mode="min",
        perturbation_interval=procedure.interval,
        hyperparam_mutations={"lr": tune.loguniform(1e-4, 1.0)},
        quantile_fraction=procedure.quantile,
        resample_probability=procedure.resample,
        perturbation_factors=tuple(procedure.factors),
        log_config=False,
        synch=True,
    )
    controller = SimpleNamespace(search_alg=None, get_trials=lambda: members, get_live_trials=lambda: members)
    for member in members:
        scheduler.on_trial_add(controller, member)
    for epoch in range(procedure.epochs):
        for member in members:
            member.skill = moving.learned(member.skill, member.config["lr"], epoch)
            member.loss = moving.missing(member.skill) + moving.NOISE * random.random()
        for member in members if epoch + 1 < procedure.epochs else ():
            scheduler.on_trial_result(controller, member, {"training_iteration": epoch + 1, "loss": member.loss})
        for member in members:
            result = member.run_metadata.checkpoint_manager._latest_checkpoint_result
            if result is not None:
                member.skill = result.checkpoint[0]
                member.run_metadata.checkpoint_manager._latest_checkpoint_result = None
    best = min(members, key=lambda member: member.loss)
    return moving.missing(best.skill), procedure.population * procedure.epochs
