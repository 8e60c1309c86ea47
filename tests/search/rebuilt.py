"""A simple reference of the Optuna sampler: it creates a new Optuna study for every config."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from statistics import fmean
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

from hoptree.core import keys
from hoptree.core.schedules import Config
from hoptree.search import optuna_methods
from hoptree.search.optuna_distributions import optuna_arguments, suggest
from hoptree.search.parse_space import Space, read
from hoptree.search.points import RandomPoints
from hoptree.search.tree import Decisions, decide, parameters
from hoptree.search.unique_configs import UniqueConfigs


class Rebuilt:
    """Behaves like ``OptunaSampler``, but keeps no Optuna object between calls of ``ask``."""

    def __init__(self, space: Space, seed: int, method: str, options: Mapping[str, Any]) -> None:
        self.root = read(space)
        self.parameters = {parameter.path: parameter for parameter in parameters(self.root)}
        self.fresh, self.points, self.seed = UniqueConfigs(self.root, seed), RandomPoints(seed), seed
        self.method, self.options = method, dict(options)
        self.startup = self.options["n_startup_trials"]
        self.given: list[tuple[Decisions, dict[str, Any]]] = []
        self.losses: dict[int, dict[int, float]] = {}

    def ask(self) -> Config | None:
        drawn, attributes = self.propose() if len(self.losses) >= self.startup else (None, {})
        if drawn is None:
            drawn = self.fresh.draw(partial(self.points.of, len(self.given)))
        if drawn is None:
            return None
        self.given.append((drawn.decisions, attributes))
        return drawn.config

    def tell(self, config: int, epoch: int, loss: float) -> None:
        self.losses.setdefault(config, {})[epoch] = loss

    def propose(self) -> tuple[Any, dict[str, Any]]:
        losses = comparable(self.losses, self.startup)
        seed = keys.seed("optuna", self.seed, self.method, len(self.given))
        with optuna_methods.quiet():
            study = optuna.create_study(sampler=optuna_methods.make(self.method, self.options, seed))
            study.add_trials(self.trials(losses))
            for _ in range(5):
                trial = study.ask()
                drawn = self.fresh.accept(decide(self.root, partial(suggest, trial)))
                if drawn is not None:
                    return drawn, study.get_trials(deepcopy=False)[trial.number].system_attrs
                study.tell(trial, max(losses.values(), default=0.0))
        return None, {}

    def trials(self, values: dict[int, float]) -> Iterator[FrozenTrial]:
        if self.method == "gp" and values:
            values = dict.fromkeys(range(len(self.given)), fmean(values.values())) | values
        for config, (decisions, attributes) in enumerate(self.given):
            losses = {epoch: loss for epoch, loss in self.losses.get(config, {}).items() if math.isfinite(loss)}
            if config in values:
                state = TrialState.COMPLETE
            elif losses:
                state = TrialState.PRUNED
            else:
                state = TrialState.FAIL if config in self.losses else TrialState.RUNNING
            yield create_trial(
                state=state,
                value=values.get(config),
                intermediate_values=losses,
                system_attrs=attributes,
                **optuna_arguments(self.parameters, decisions),
            )


def comparable(losses_by_config: Mapping[int, Mapping[int, float]], enough: int) -> dict[int, float]:
    """Return the values of ``Comparison`` after a refresh, computed from scratch."""
    finite = {config: losses for config, losses in losses_by_config.items() if math.isfinite(losses[max(losses)])}
    if not finite:
        return {}
    deepest = sorted(map(max, finite.values()), reverse=True)
    level = deepest[min(max(1, enough), len(deepest)) - 1]
    values = {
        config: next(losses[epoch] for epoch in sorted(losses) if epoch >= level and math.isfinite(losses[epoch]))
        for config, losses in finite.items()
        if max(losses) >= level
    }
    return values | dict.fromkeys(
        (config for config in losses_by_config if config not in finite), max(values.values())
    )
