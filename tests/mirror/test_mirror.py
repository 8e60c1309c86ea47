"""A study in an Optuna storage: what is shown, and that it can be shown again."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

import hoptree as ht
from hoptree.core.errors import WorkloadError
from hoptree.mirror import OptunaMirror, TrialSnapshot, optuna_mirror
from hoptree.mirror.parameters import Parameters
from hoptree.search import Goal, make_sampler
from hoptree.store.errors import StoreUnreachableError
from tests.search.test_optuna_sampler import CONDITIONAL

SPACE = {"lr": ht.log(1e-4, 1.0), "width": ht.choice(8, 16), "batch_size": 32}
CONFIG = {"lr": 0.01, "width": 8, "batch_size": 32}
GOAL = Goal("accuracy", maximize=True)


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'optuna.db'}"


def mirrored(url: str, *trials: TrialSnapshot, identity: str = "one", goal: Goal = GOAL) -> list[Any]:
    with OptunaMirror(url, "mine", identity, SPACE, goal) as mirror:
        mirror.show(trials)
    storage = optuna.storages.RDBStorage(url)
    found = storage.get_all_trials(storage.get_study_id_from_name("mine"))
    storage.engine.dispose()
    return found


def shown(number: int, state: Any, *values: float, error: str = "") -> TrialSnapshot:
    curve = {epoch: {"accuracy": value, "loss": 1 - value} for epoch, value in enumerate(values, start=1)}
    return TrialSnapshot(number, CONFIG, state, curve, error)


# --- parameters -------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000))
def test_every_config_fits_the_distributions(seed: int) -> None:
    parameters = Parameters(CONDITIONAL)
    sampler = make_sampler("random", CONDITIONAL, seed)
    for _ in range(5):
        config = sampler.ask()
        assert config is not None
        values = parameters.values(config)
        for name, value in values.items():
            distribution = parameters.distributions[name]
            assert distribution._contains(distribution.to_internal_repr(value))
        assert values["width"] == config["width"]
        assert values["dropout"] == config["dropout"]
        assert values["depth"] == config["depth"]
        assert config["lr"](0) in values.values()
        assert ("optimizer[0].momentum" in values) == (config["optimizer.name"] == "sgd")


def test_distributions_are_those_of_the_space() -> None:
    found = Parameters(
        {
            "lr": ht.choice(3e-3, ht.multistep(3e-3, at=[4], gamma=0.1)),
            "x": ht.uniform(0, 1, step=0.3),
            "n": ht.integer(1, 8, step=3),
            "rate": ht.log(0.1, 1.0, step=0.4),
            "wide": ht.integer(8, 64, step=8, log=True),
            "deep": ht.integer(1, 64, log=True),
            "flag": ht.choice(True, False, None),
            "odd": ht.choice(1, True),
            "same": ht.choice("a", "a"),
            "part": ht.choice({"name": "sgd", "momentum": ht.uniform(0, 1)}, {"name": "adam"}),
            "only": ht.choice("this"),
            "batch_size": 64,
        }
    )
    assert found.distributions == {
        "lr": CategoricalDistribution(["0.003", "multistep(0.003, [4], 0.1)"]),
        "x": FloatDistribution(0, 0.9, step=0.3),
        "n": IntDistribution(1, 7, step=3),
        "rate": FloatDistribution(0.1, 0.9, log=True),
        "wide": IntDistribution(8, 64, log=True),
        "deep": IntDistribution(1, 64, log=True),
        "flag": CategoricalDistribution([True, False, None]),
        "odd": CategoricalDistribution(["1", "True"]),
        "same": CategoricalDistribution(["a (option 0)", "a (option 1)"]),
        "part": CategoricalDistribution(["{'name': sgd, 'momentum': uniform(0.0, 1.0)}", "{'name': adam}"]),
        "part[0].momentum": FloatDistribution(0, 1),
    }
    assert found.constants == {"batch_size": "64"}


def test_values_outside_the_space_are_attributes_as_text(tmp_path: Path) -> None:
    added = TrialSnapshot(0, {"lr": 7.0, "width": 16, "batch_size": 32}, "running", {})
    (trial,) = mirrored(url_of(tmp_path), added)
    assert trial.params == {"width": 16}
    assert trial.user_attrs == {"config": "lr=7.0, width=16, batch_size=32"}


# --- trials -----------------------------------------------------------------------------------------------


def test_states_values_and_curves(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    trials = [
        shown(0, "complete", 0.5, 0.75),
        shown(1, "stopped", 0.25),
        shown(2, "failed", error="Traceback: ValueError"),
        shown(3, "running", 0.125),
        shown(4, "complete", 0.5, math.nan),
        shown(5, "stopped"),
    ]
    found = mirrored(url, *trials)
    assert [trial.state.name for trial in found] == ["COMPLETE", "PRUNED", "FAIL", "RUNNING", "FAIL", "PRUNED"]
    assert [trial.value for trial in found] == [0.75, 0.25, None, None, None, None]
    assert found[0].intermediate_values == {1: 0.5, 2: 0.75}
    assert found[0].params == {"lr": 0.01, "width": 8}
    assert found[0].distributions == Parameters(SPACE).distributions
    assert found[0].user_attrs == {"config": "lr=0.01, width=8, batch_size=32", "epochs": 2, "metric.loss": 0.25}
    assert found[2].user_attrs["error"] == "Traceback: ValueError"
    assert found[4].user_attrs["error"] == "accuracy is nan"
    assert math.isnan(found[4].intermediate_values[2])
    study = optuna.load_study(study_name="mine", storage=url)
    assert study.direction.name == "MAXIMIZE"
    assert study.metric_names == ["accuracy"]
    assert study.best_trial.number == 0
    assert study.user_attrs == {"hoptree": "one", "batch_size": "32"}
    study._storage.remove_session()
    study._storage._backend.engine.dispose()


def test_mirroring_again_changes_nothing(tmp_path: Path) -> None:
    trials = [shown(0, "complete", 0.5), shown(1, "complete", math.nan), shown(2, "running", 0.5)]
    first, second = (mirrored(url_of(tmp_path), *trials) for _ in range(2))
    assert repr(first) == repr(second)  # with their times


STATES = st.sampled_from(["running", "complete", "stopped", "failed"])
CURVES = st.lists(st.floats(0, 1) | st.just(math.nan), max_size=4)
CHANGES = st.lists(st.tuples(st.integers(0, 3), STATES, CURVES), min_size=1, max_size=8)


@settings(deadline=None, max_examples=4)
@given(CHANGES, st.booleans())
@pytest.mark.slow
def test_changes_end_where_a_new_mirror_begins(changes: list[Any], reopened: bool) -> None:
    with TemporaryDirectory() as folder:
        ends_the_same(Path(folder), changes, reopened)


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(CHANGES, st.booleans())
def test_many_changes_end_where_a_new_mirror_begins(changes: list[Any], reopened: bool) -> None:
    with TemporaryDirectory() as folder:
        ends_the_same(Path(folder), changes, reopened)


def ends_the_same(folder: Path, changes: list[Any], reopened: bool) -> None:
    """Trials come one by one, end, go on and end again; mirrored at once or step by step, it is the same."""
    now = {number: shown(number, "running") for number in range(4)}
    steps = [list(now.values())]
    for number, state, more in changes:
        before = [metrics["accuracy"] for metrics in now[number].curve.values()]
        now[number] = shown(number, state, *before, *more, error="why" if state == "failed" else "")
        steps.append([now[number]])
    step_by_step = f"sqlite:///{folder / 'steps.db'}"
    if reopened:
        for step in steps:
            last = mirrored(step_by_step, *step)
    else:
        with OptunaMirror(step_by_step, "mine", "one", SPACE, GOAL) as mirror:
            for step in steps:
                mirror.show(step)
        last = mirrored(step_by_step)
    at_once = mirrored(f"sqlite:///{folder / 'once.db'}", *now.values())
    assert len(last) == len(at_once) == 4
    for one, other in zip(last, at_once, strict=True):
        assert (one.state, one.value, one.params) == (other.state, other.value, other.params)
        assert repr(one.intermediate_values) == repr(other.intermediate_values)
        assert (one.datetime_complete is None) == (one.state == TrialState.RUNNING)
        if one.state.is_finished():
            for name, value in other.user_attrs.items():
                assert repr(one.user_attrs[name]) == repr(value)


def test_two_mirrors_at_once_do_not_double_trials(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    with (
        OptunaMirror(url, "mine", "one", SPACE, GOAL) as mirror,
        OptunaMirror(url, "mine", "one", SPACE, GOAL) as other,
    ):
        mirror.show([shown(0, "running"), shown(1, "running", 0.5)])
        other.show([shown(0, "complete", 0.5), shown(1, "running", 0.5), shown(2, "running")])
        mirror.show([shown(2, "complete", 0.25)])
    found = mirrored(url)
    assert [trial.state.name for trial in found] == ["COMPLETE", "RUNNING", "COMPLETE"]


# --- refusals ---------------------------------------------------------------------------------------------


def test_unknown_tables_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials are reopened in Optuna's own tables: an Optuna that has changed them must not be written to."""
    url = f"sqlite:///{tmp_path}/optuna.db"
    storage = optuna.storages.RDBStorage(url)
    assert storage.get_head_version() == optuna_mirror._TABLES
    storage.remove_session()
    storage.engine.dispose()
    monkeypatch.setattr(optuna_mirror, "_TABLES", "v0.0.0.a")
    with pytest.raises(WorkloadError, match=r"tables of version v\S+; expected version v0\.0\.0\.a"):
        OptunaMirror(url, "study", "1", {"a": 1}, Goal("loss", maximize=False))


def test_another_study_of_the_same_name_is_refused(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    mirrored(url, shown(0, "running"))
    with pytest.raises(WorkloadError, match=r"'mine' in sqlite:.* is the mirror of another study of this name"):
        mirrored(url, identity="two")
    study = optuna.create_study(storage=url, study_name="optunas")
    study.ask()
    with pytest.raises(WorkloadError, match=r"'optunas' in .* is no mirror; use another database"):
        OptunaMirror(url, "optunas", "one", SPACE, GOAL)
    study._storage.remove_session()
    study._storage._backend.engine.dispose()


@pytest.mark.parametrize(
    ("url", "kind", "message"),
    [
        (
            "optuna.db",
            WorkloadError,
            "mirror: 'optuna.db'; expected the URL of a database, for example 'sqlite:///",
        ),
        (7, WorkloadError, "mirror: 7; expected the URL"),
        ("sqlite:////no/such/folder/optuna.db", StoreUnreachableError, "cannot be opened"),
        ("nothing://user:secret@host/x", WorkloadError, r"mirror: nothing://user:\*\*\*@host/x"),
    ],
)
def test_impossible_storages_are_refused(url: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        OptunaMirror(url, "mine", "one", SPACE, GOAL)
    assert "secret" not in str(caught.value)


def test_without_optuna_the_extra_is_named(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['optuna'] = None\n"
        "from hoptree.mirror import OptunaMirror\n"
        "from hoptree.search import Goal\n"
        "OptunaMirror('sqlite:///x.db', 'a', 'b', {'a': 1}, Goal('loss', False))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=900
    )
    assert "MissingExtraError: mirror: needs optuna, which is not installed" in done.stderr
