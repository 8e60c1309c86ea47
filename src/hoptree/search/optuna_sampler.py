"""Optuna's samplers behind our protocol: TPE, CMA-ES and Gaussian processes.

A new Optuna study is made in memory for every config that is asked for. It holds one Optuna trial for each config
so far, and its sampler is seeded by the seed and the number of the config. So config n follows from what has been
told when it is asked for, and from nothing else: replaying the same asks and tells gives the same configs.

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
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any, final

from hoptree.core.errors import WorkloadError
from hoptree.core.lineage import seed_of
from hoptree.core.schedules import Config
from hoptree.search import checks, optuna_methods
from hoptree.search.fidelity import comparable
from hoptree.search.fresh import Drawn, Fresh
from hoptree.search.optuna_methods import METHODS, quiet
from hoptree.search.optuna_terms import asked, terms
from hoptree.search.points import RandomPoints
from hoptree.search.reading import Space, read
from hoptree.search.tree import Decisions, Parameter, Pick, decide, parameters

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

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
        self, space: Space, seed: int, method: str = "tpe", options: Mapping[str, Any] | None = None
    ) -> None:
        self._options = dict(options or {})
        optuna_methods.check(method, self._options)
        self._startup = self._options.get("n_startup_trials", METHODS[method].startup)
        checks.whole("n_startup_trials", self._startup, 0)
        self._root = read(space)
        self._parameters = {parameter.path: parameter for parameter in parameters(self._root)}
        if method == "tpe" and _is_conditional(self._parameters.values()):
            self._options.setdefault("group", True)
        self._fresh = Fresh(self._root, seed)
        self._points = RandomPoints(seed)
        self._seed = seed
        self._method = method
        self._given: list[tuple[Decisions, dict[str, Any]]] = []
        self._told: dict[int, dict[int, float]] = {}

    def ask(self) -> Config | None:
        """Return the next config."""
        drawn: Drawn | None = None
        notes: dict[str, Any] = {}
        if len(self._told) >= self._startup:
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
        self._told.setdefault(config, {})[epoch] = loss

    def _propose(self) -> tuple[Drawn | None, dict[str, Any]]:
        """Return a config, and what Optuna noted on its trial: CMA-ES keeps its state there."""
        import optuna

        losses = comparable(self._told, self._startup)
        worst = max(losses.values(), default=0.0)
        seed = seed_of(self._seed, self._method, len(self._given))
        with quiet():
            study = optuna.create_study(sampler=optuna_methods.make(self._method, self._options, seed))
            study.add_trials(self._trials(losses))
        for _ in range(_ATTEMPTS):
            with quiet():
                trial = study.ask()
                decisions = decide(self._root, partial(asked, trial))
            drawn = self._fresh.accept(decisions)
            if drawn is not None:
                return drawn, study.get_trials(deepcopy=False)[trial.number].system_attrs
            with quiet():
                study.tell(trial, worst)  # so that it looks elsewhere
        return None, {}

    def _trials(self, comparable_losses: Mapping[int, float]) -> Iterator[FrozenTrial]:
        """Yield what is known of every config, in Optuna's terms."""
        from optuna.trial import TrialState, create_trial

        values = dict(comparable_losses)
        if self._method == "gp" and values:
            values = dict.fromkeys(range(len(self._given)), fmean(values.values())) | values
        for config, (decisions, notes) in enumerate(self._given):
            losses = {epoch: loss for epoch, loss in self._told.get(config, {}).items() if math.isfinite(loss)}
            if config in values:
                state = TrialState.COMPLETE
            elif losses:
                state = TrialState.PRUNED
            else:
                state = TrialState.FAIL if config in self._told else TrialState.RUNNING
            yield create_trial(
                state=state,
                value=values.get(config),
                intermediate_values=losses,
                system_attrs=notes,
                **terms(self._parameters, decisions),
            )


def _is_conditional(found: Iterable[Parameter]) -> bool:
    """Return whether something is left open below an option."""
    return any(
        parameters(option) for parameter in found if isinstance(parameter, Pick) for option in parameter.options
    )
