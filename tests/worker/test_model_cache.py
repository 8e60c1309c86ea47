"""The models of a worker hold the state that is asked for, whatever they held before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hoptree.core.actions import Origin
from hoptree.store import FolderStates
from hoptree.worker.messages import StateSource
from hoptree.worker.model_cache import CachedModel, LostStateError, ModelCache
from tests.system.plain import Plain

ORIGIN = Origin({"lr": 0.1}, 5)


@pytest.fixture
def states(tmp_path: Path) -> FolderStates:
    states = FolderStates(tmp_path / "states")
    for name, value in (("one", 1.0), ("two", 2.0)):
        states.put(name, {"w": np.full(16, value)}, {"units": int(value)})
    return states


def check_that_the_state_asked_for_is_in_it(states: FolderStates) -> None:
    models = ModelCache(Plain(), states)
    untrained = models.restore(ORIGIN, None).model["w"].copy()
    for name, value in (("one", 1.0), ("two", 2.0), ("two", 2.0), ("one", 1.0)):
        resident = models.restore(ORIGIN, StateSource(name))
        assert resident.key == name
        assert np.array_equal(resident.model["w"], np.full(16, value)), f"asked for {name}"
    assert np.array_equal(models.restore(ORIGIN, None).model["w"], untrained)


def test_the_cached_model_has_the_requested_state(states: FolderStates) -> None:
    check_that_the_state_asked_for_is_in_it(states)


def test_a_stale_model_is_noticed(states: FolderStates, monkeypatch: pytest.MonkeyPatch) -> None:
    restore = ModelCache.restore

    def stale(models: ModelCache, origin: Origin, source: StateSource | None) -> CachedModel:
        resident = next((r for r in models._cached.values() if r.key), None)
        if resident is None or source is None:
            return restore(models, origin, source)
        resident.key = source.key  # and what is in it stays
        return resident

    monkeypatch.setattr(ModelCache, "restore", stale)
    with pytest.raises(AssertionError, match="asked for two"):
        check_that_the_state_asked_for_is_in_it(states)


def test_a_model_into_which_nothing_could_be_loaded_holds_nothing(states: FolderStates) -> None:
    models = ModelCache(Plain(), states)
    resident = models.restore(ORIGIN, StateSource("one"))
    with pytest.raises(LostStateError):
        models.restore(ORIGIN, StateSource("nowhere"))
    assert resident.key == ""
    assert np.array_equal(models.restore(ORIGIN, StateSource("one")).model["w"], np.full(16, 1.0))
