"""Optuna's samplers as our samplers: TPE, CMA-ES and Gaussian processes.

An in-memory Optuna study holds one Optuna trial for each config so far. Before a config is proposed, the trials
with new losses are replaced (``optuna_storage.py``), and the study gets a new sampler, seeded by the seed and the
number of the config. So config n depends only on the losses reported before it is requested: replaying the same
calls of ``ask`` and ``tell`` gives the same configs.

A config may get several losses, after more and more epochs, and no loss is marked as the last one. Losses after
different numbers of epochs are not comparable. So, as in BOHB, the model is fitted at one level: the deepest epoch
that enough configs have reached, as many as the sampler needs to start (``fidelity.py``).

- A config that reached the level is a complete trial, with its first loss at or after the level.
- A config that has not reached it yet is a pruned trial with its losses so far: TPE ranks it behind the complete
  ones, deeper ones first; CMA-ES uses its last loss.
- A config without a loss is a running trial: TPE avoids its neighbourhood.
- For a Gaussian process both are complete, with the mean of the losses at the level: it would ignore pruned trials,
  and its own handling of running ones takes ten seconds per config in a mixed space.
- A failed config is complete and as bad as the worst, because no model accepts infinity.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any, final

from hoptree.core.errors import HoptreeError, WorkloadError
from hoptree.core.keys import seed
from hoptree.core.schedules import Config
from hoptree.search import checks, optuna_methods
from hoptree.search.fidelity import Comparison
from hoptree.search.optuna_distributions import optuna_arguments, suggest
from hoptree.search.optuna_methods import METHODS, quiet
from hoptree.search.parse_space import Space, read
from hoptree.search.points import RandomPoints
from hoptree.search.tree import ChoiceNode, Decisions, Parameter, decide, parameters
from hoptree.search.unique_configs import DrawnConfig, UniqueConfigs

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

    from hoptree.search.optuna_storage import EditableStorage

_ATTEMPTS = 5


@final
class OptunaSampler:
    """Proposes configs by one of Optuna's methods; ``options`` are passed to its sampler.

    Until ``n_startup_trials`` configs have a loss (10, for CMA-ES 1) the configs are those of the sampler "random"
    with the same seed, so that studies with different samplers share them. The method "random" never stops doing
    so. A proposal that the space rejects, or that repeats an earlier config, is retried up to 5 times, then
    replaced by a random one.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        method: str = "tpe",
        options: Mapping[str, Any] | None = None,
        *,
        options_checked: bool = False,
    ) -> None:
        self._options = dict(options or {})
        optuna_methods.check(method, self._options)
        if not options_checked and self._options.keys() - {"n_startup_trials"}:
            _check_options(space, seed, method, self._options)
        self._startup = self._options.get("n_startup_trials", METHODS[method].startup)
        checks.whole("n_startup_trials", self._startup, 0)
        self._root = read(space)
        self._parameters = {parameter.path: parameter for parameter in parameters(self._root)}
        if method == "tpe" and _is_conditional(self._parameters.values()):
            self._options.setdefault("group", True)
        self._unique = UniqueConfigs(self._root, seed)
        self._points = RandomPoints(seed)
        self._seed = seed
        self._method = method
        self._given: list[tuple[Decisions, dict[str, Any]]] = []
        self._losses = Comparison(self._startup)
        self._storage: EditableStorage | None = None
        self._study: Study | None = None
        self._mean: float | None = None

    def ask(self) -> Config | None:
        """Return the next config."""
        drawn: DrawnConfig | None = None
        attributes: dict[str, Any] = {}
        if len(self._losses.losses) >= self._startup:
            drawn, attributes = self._propose()
        if drawn is None:
            drawn = self._unique.draw(partial(self._points.of, len(self._given)))
        if drawn is None:
            return None
        self._given.append((drawn.decisions, attributes))
        return drawn.config

    def tell(self, config: int, epoch: int, loss: float) -> None:
        """Add a loss, or replace the one at the same epoch."""
        if not 0 <= config < len(self._given):
            raise WorkloadError(f"config: {config}; expected one of the {len(self._given)} that were asked for")
        self._losses.tell(config, epoch, loss)

    def _propose(self) -> tuple[DrawnConfig | None, dict[str, Any]]:
        """Return a config, and the system attributes of its trial, where CMA-ES keeps its state."""
        number = len(self._given)
        with quiet():
            study, storage = self._update_study()
            study.sampler = optuna_methods.make(
                self._method, self._options, seed("optuna", self._seed, self._method, number)
            )
            try:
                for _ in range(_ATTEMPTS):
                    trial = study.ask()
                    drawn = self._unique.accept(decide(self._root, partial(suggest, trial)))
                    if drawn is not None:
                        return drawn, storage.get_trial(trial.number).system_attrs
                    study.tell(trial, self._losses.worst or 0.0)  # so that the next proposal is elsewhere
            finally:
                storage.remove_from(number)
        return None, {}

    def _update_study(self) -> tuple[Study, EditableStorage]:
        """Return the study, with the current losses of every config."""
        changed = self._losses.refresh()
        if self._study is None or self._storage is None:
            import optuna

            from hoptree.search.optuna_storage import EditableStorage

            self._storage = EditableStorage()
            self._study = optuna.create_study(storage=self._storage)
        if self._method == "gp":
            mean = fmean(values) if (values := self._losses.values.values()) else None
            if mean != self._mean:
                self._mean = mean
                changed = set(range(len(self._given)))
        known = self._storage.count
        for config in (*sorted(number for number in changed if number < known), *range(known, len(self._given))):
            self._storage.put(self._trial(config))
        return self._study, self._storage

    def _trial(self, config: int) -> FrozenTrial:
        """Return a config and its losses as an Optuna trial."""
        from optuna.trial import TrialState

        from hoptree.search.optuna_storage import frozen

        decisions, attributes = self._given[config]
        reported = self._losses.losses.get(config, {})
        losses = {epoch: loss for epoch, loss in reported.items() if math.isfinite(loss)}
        value = self._losses.value(config)
        if value is None:
            value = self._mean
        if value is not None:
            state = TrialState.COMPLETE
        elif losses:
            state = TrialState.PRUNED
        else:
            state = TrialState.FAIL if reported else TrialState.RUNNING
        arguments = optuna_arguments(self._parameters, decisions)
        return frozen(config, state, value, system_attributes=attributes, losses=losses, **arguments)


def _check_options(space: Space, seed: int, method: str, options: Mapping[str, Any]) -> None:
    """Raise an error for options that Optuna accepts but that make its first proposal fail."""
    sampler = OptunaSampler(space, seed, method, {**options, "n_startup_trials": 2}, options_checked=True)
    try:
        for number in range(4):
            if sampler.ask() is None:
                return
            sampler.tell(number, 1, float(number))
    except HoptreeError:
        raise
    except Exception as error:
        raise WorkloadError(
            f"Optuna({method!r}): the sampler fails with {dict(options)}: {type(error).__name__}: {error}; "
            "expected options as Optuna documents them"
        ) from error


def _is_conditional(found: Iterable[Parameter]) -> bool:
    """Return whether any option of a choice has parameters of its own."""
    return any(
        parameters(option)
        for parameter in found
        if isinstance(parameter, ChoiceNode)
        for option in parameter.options
    )
