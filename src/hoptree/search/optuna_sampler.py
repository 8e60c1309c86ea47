"""Optuna's samplers behind our protocol: TPE, CMA-ES and Gaussian processes.

An Optuna study in memory holds one Optuna trial for each config so far. Before a config is proposed, the trials of
which more is known now are replaced (``optuna_past.py``), and the study gets a new sampler, seeded by the seed and
the number of the config. So config n follows from what has been told when it is asked for, and from nothing else:
replaying the same asks and tells gives the same configs.

A config may be told several times, after more and more epochs, and it is never said that a loss is the last one.
Losses after different numbers of epochs do not compare. So, as in BOHB, a model is made at one level: the deepest
epoch that enough configs have reached, as many as the sampler wants before it begins (``fidelity.py``).

- A config that reached the level is a complete trial, with its first loss at or after it.
- One that did not, yet, is a pruned trial with the losses it has: TPE ranks it behind the complete ones, deeper
  ones first; CMA-ES takes its last loss.
- One of which nothing is known is a running trial: TPE keeps away from it.
- For a Gaussian process both are complete, with the mean of the losses at the level: it would leave out the
  pruned ones, and its own way to keep away from running ones takes ten seconds for a config in a mixed space.
- A failed one is complete and as bad as the worst, since no model can take infinity.
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
from hoptree.search.optuna_distributions import asked, terms
from hoptree.search.optuna_methods import METHODS, quiet
from hoptree.search.parse_space import Space, read
from hoptree.search.points import RandomPoints
from hoptree.search.tree import Decisions, Parameter, Pick, decide, parameters
from hoptree.search.unique_configs import DrawnConfig, UniqueConfigs

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

    from hoptree.search.optuna_storage import EditableStorage

_ATTEMPTS = 5


@final
class OptunaSampler:
    """Proposes configs by one of Optuna's methods; ``options`` go to its sampler.

    Until ``n_startup_trials`` have been told (10, for CMA-ES 1) the configs are those of the sampler "random" with
    the same seed, so that studies with different samplers share them. The method "random" goes on like that. A
    proposal that the space refuses, or that was given before, is repeated up to 5 times, then replaced by a random
    one.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        method: str = "tpe",
        options: Mapping[str, Any] | None = None,
        *,
        tried: bool = False,
    ) -> None:
        self._options = dict(options or {})
        optuna_methods.check(method, self._options)
        if not tried and self._options.keys() - {"n_startup_trials"}:
            _try_out(space, seed, method, self._options)
        self._startup = self._options.get("n_startup_trials", METHODS[method].startup)
        checks.whole("n_startup_trials", self._startup, 0)
        self._root = read(space)
        self._parameters = {parameter.path: parameter for parameter in parameters(self._root)}
        if method == "tpe" and _is_conditional(self._parameters.values()):
            self._options.setdefault("group", True)
        self._fresh = UniqueConfigs(self._root, seed)
        self._points = RandomPoints(seed)
        self._seed = seed
        self._method = method
        self._given: list[tuple[Decisions, dict[str, Any]]] = []
        self._losses = Comparison(self._startup)
        self._past: EditableStorage | None = None
        self._study: Study | None = None
        self._mean: float | None = None

    def ask(self) -> Config | None:
        """Return the next config."""
        drawn: DrawnConfig | None = None
        notes: dict[str, Any] = {}
        if len(self._losses.told) >= self._startup:
            drawn, notes = self._propose()
        if drawn is None:
            drawn = self._fresh.draw(partial(self._points.of, len(self._given)))
        if drawn is None:
            return None
        self._given.append((drawn.decisions, notes))
        return drawn.config

    def tell(self, config: int, epoch: int, loss: float) -> None:
        """Learn a loss; another one after the same epoch replaces it."""
        if not 0 <= config < len(self._given):
            raise WorkloadError(f"config: {config}; expected one of the {len(self._given)} that were asked for")
        self._losses.tell(config, epoch, loss)

    def _propose(self) -> tuple[DrawnConfig | None, dict[str, Any]]:
        """Return a config, and what Optuna noted on its trial: CMA-ES keeps its state there."""
        number = len(self._given)
        with quiet():
            study, past = self._up_to_date()
            study.sampler = optuna_methods.make(
                self._method, self._options, seed("optuna", self._seed, self._method, number)
            )
            try:
                for _ in range(_ATTEMPTS):
                    trial = study.ask()
                    drawn = self._fresh.accept(decide(self._root, partial(asked, trial)))
                    if drawn is not None:
                        return drawn, past.get_trial(trial.number).system_attrs
                    study.tell(trial, self._losses.worst or 0.0)  # so that it looks elsewhere
            finally:
                past.forget(number)
        return None, {}

    def _up_to_date(self) -> tuple[Study, EditableStorage]:
        """Return the study, with every config as it is known now."""
        changed = self._losses.refresh()
        if self._study is None or self._past is None:
            import optuna

            from hoptree.search.optuna_storage import EditableStorage

            self._past = EditableStorage()
            self._study = optuna.create_study(storage=self._past)
        if self._method == "gp":
            mean = fmean(values) if (values := self._losses.values.values()) else None
            if mean != self._mean:
                self._mean = mean
                changed = set(range(len(self._given)))
        known = self._past.count
        for config in (*sorted(number for number in changed if number < known), *range(known, len(self._given))):
            self._past.put(self._trial(config))
        return self._study, self._past

    def _trial(self, config: int) -> FrozenTrial:
        """Return what is known of a config, in Optuna's terms."""
        from optuna.trial import TrialState

        from hoptree.search.optuna_storage import frozen

        decisions, notes = self._given[config]
        told = self._losses.told.get(config, {})
        losses = {epoch: loss for epoch, loss in told.items() if math.isfinite(loss)}
        value = self._losses.value(config)
        if value is None:
            value = self._mean
        if value is not None:
            state = TrialState.COMPLETE
        elif losses:
            state = TrialState.PRUNED
        else:
            state = TrialState.FAIL if told else TrialState.RUNNING
        return frozen(config, state, value, notes=notes, losses=losses, **terms(self._parameters, decisions))


def _try_out(space: Space, seed: int, method: str, options: Mapping[str, Any]) -> None:
    """Refuse options that Optuna takes and cannot work with: it would say so at its first proposal only."""
    sampler = OptunaSampler(space, seed, method, {**options, "n_startup_trials": 2}, tried=True)
    try:
        for number in range(4):
            if sampler.ask() is None:
                return
            sampler.tell(number, 1, float(number))
    except HoptreeError:
        raise
    except Exception as error:
        raise WorkloadError(
            f"Optuna({method!r}): its sampler cannot work with {dict(options)}: {type(error).__name__}: {error}; "
            "expected options as Optuna documents them"
        ) from error


def _is_conditional(found: Iterable[Parameter]) -> bool:
    """Return whether something is left open below an option."""
    return any(
        parameters(option) for parameter in found if isinstance(parameter, Pick) for option in parameter.options
    )
