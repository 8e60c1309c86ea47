"""Updating one Optuna study gives the same proposals as a new study for every config."""

from __future__ import annotations

import math
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import IntDistribution
from optuna.trial import TrialState

import hoptree as ht
from hoptree.search.fidelity import Comparison
from hoptree.search.optuna_sampler import OptunaSampler
from hoptree.search.optuna_storage import EditableStorage, frozen
from tests.search.rebuilt import Rebuilt, comparable
from tests.search.test_optuna_sampler import BOWL, CONDITIONAL

SMALL = {"a": ht.choice("x", "y", "z"), "b": ht.integer(1, 4)}  # proposals often repeat: some are removed
REFUSING = ht.where(CONDITIONAL, lambda config: config["width"] * config["depth"] < 256)

LOSS = st.floats(-1e3, 1e3) | st.sampled_from([math.inf, 0.0, 0.5])
STEPS = st.lists(
    st.none() | st.tuples(st.integers(0, 30), st.sampled_from([1, 3, 9]), LOSS), min_size=10, max_size=45
)


def same_configs(method: str, space: Any, seed: int, startup: int, steps: list[Any]) -> None:
    """Ask (None) and tell both samplers; a tell names any earlier config."""
    options = {"n_startup_trials": startup}
    kept, rebuilt = OptunaSampler(space, seed, method, options), Rebuilt(space, seed, method, options)
    if "optimizer" in space and method == "tpe":
        rebuilt.options["group"] = True
    count = 0
    for step in steps:
        if step is None:
            config = kept.ask()
            assert config == rebuilt.ask()
            count += config is not None
        elif count:
            number, epoch, loss = step
            kept.tell(number % count, epoch, loss)
            rebuilt.tell(number % count, epoch, loss)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([BOWL, CONDITIONAL, SMALL, REFUSING]), st.integers(0, 9), st.integers(1, 6), STEPS)
def test_tpe_proposes_what_a_new_study_would(space: Any, seed: int, startup: int, steps: list[Any]) -> None:
    same_configs("tpe", space, seed, startup, steps)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([BOWL, CONDITIONAL, SMALL]), st.integers(0, 9), st.integers(1, 6), STEPS)
def test_cma_es_proposes_what_a_new_study_would(space: Any, seed: int, startup: int, steps: list[Any]) -> None:
    same_configs("cma-es", space, seed, startup, steps)


@pytest.mark.slow
def test_a_gaussian_process_proposes_what_a_new_study_would() -> None:
    """A single history, because each proposal takes half a second: failures, a new level, a replaced loss."""
    reported = [(0, 1, 0.5), (1, 1, math.inf), (2, 1, 0.25), (0, 3, 0.75), (2, 3, 0.5), (1, 1, 0.125)]
    same_configs("gp", BOWL, 4, 2, [None, None, None, *(step for tell in reported for step in (tell, None))])


@given(
    st.integers(0, 6),
    st.lists(st.none() | st.tuples(st.integers(0, 8), st.sampled_from([1, 2, 4, 9]), LOSS), max_size=40),
)
def test_losses_stay_comparable_as_reports_arrive(enough: int, steps: list[Any]) -> None:
    """Configs that have not changed since the last refresh are not returned."""
    comparison = Comparison(enough)
    reported: dict[int, dict[int, float]] = {}
    seen: dict[int, Any] = {}
    for step in [*steps, None]:
        if step is not None:
            comparison.tell(*step)
            reported.setdefault(step[0], {})[step[1]] = step[2]
            continue
        changed = comparison.refresh()
        values = comparable(reported, enough)
        assert comparison.values == values
        now = {config: (values.get(config), dict(losses)) for config, losses in reported.items()}
        assert {config for config in now if now[config] != seen.get(config)} <= changed <= set(reported)
        assert all(comparison.value(config) == values.get(config) for config in range(9))
        assert comparison.worst == max(values.values(), default=None)
        assert comparison.refresh() == set()
        seen = now


def test_editable_storage_implements_optunas_storage() -> None:
    """The methods of a storage that Optuna uses and our sampler does not."""
    storage = EditableStorage()
    storage.put(frozen(0, TrialState.COMPLETE, 3.0, params={"n": 4}, distributions={"n": IntDistribution(1, 9)}))
    study = optuna.create_study(storage=storage, sampler=optuna.samplers.RandomSampler(seed=0))
    for value in (2.0, 1.0, 5.0):
        trial = study.ask()
        assert 1 <= trial.suggest_int("n", 1, 9) <= 9
        trial.report(value + 1, step=1)
        trial.set_user_attr("told", value)
        study.tell(trial, value)
    assert study.best_value == 1.0
    assert [trial.number for trial in study.trials] == [0, 1, 2, 3]
    assert study.trials[2].intermediate_values == {1: 2.0}
    assert study.trials[2].user_attrs == {"told": 1.0}
    assert storage.get_trial_param(0, "n") == 4
    storage.put(frozen(0, TrialState.COMPLETE, 0.5))
    assert study.best_trial.number == 0
    storage.remove_from(1)
    assert [trial.number for trial in study.trials] == [0]
    storage.remove_from(0)
    with pytest.raises(ValueError, match="No trials are completed"):
        _ = study.best_trial
