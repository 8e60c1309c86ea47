"""Several drivers on one store: what their trials share is trained once, and none of them waits for ever."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from hoptree.store import Store
from tests.system.shared_store import await_all, await_that, closed, finish, run_together, start, unique_epochs


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All grids of these tests, by one driver alone."""
    folder = tmp_path_factory.mktemp("reference")
    with closed(folder):
        pass
    return finish(start(folder, "alone", [1, 2, 3]))


def check(results: dict[str, dict[str, Any]], reference: dict[str, Any]) -> None:
    for result in results.values():
        assert set(result["states"]) == {"complete"}
        for found in ("fingerprints", "curves"):
            assert result[found] == {config: reference[found][config] for config in result[found]}


@pytest.mark.parametrize(
    "grids",
    [{"a": [1, 2], "b": [2, 3]}, pytest.param({"a": [1, 2], "b": [1, 2], "c": [1]}, marks=pytest.mark.slow)],
)
def test_what_drivers_share_is_trained_once(
    tmp_path: Path, reference: dict[str, Any], grids: dict[str, list[int]]
) -> None:
    results = run_together(tmp_path, grids)
    trained = sum(result["trained"] for result in results.values())
    assert trained == pytest.approx(unique_epochs(tmp_path, None, *grids))
    check(results, reference)


def test_a_driver_that_is_killed_is_replaced(tmp_path: Path, reference: dict[str, Any]) -> None:
    with closed(tmp_path):
        victim, other = start(tmp_path, "a", [1, 2]), start(tmp_path, "b", [1, 2])
        await_all(tmp_path, None, "a", "b")
    await_that(lambda: last_entry(tmp_path, "a") > 40)
    with closed(tmp_path):  # in the middle of whatever it trains
        os.kill(victim.pid, signal.SIGKILL)
        victim.communicate()
    survivor = finish(other)
    check({"b": survivor}, reference)
    again = finish(start(tmp_path, "a", [1, 2]))
    check({"a": again}, reference)
    assert again["trained"] == 0


def last_entry(folder: Path, study: str) -> int:
    with Store(folder / "store") as store:
        return store.journal.last(study)


@pytest.mark.slow
def test_drivers_that_wait_for_each_other_all_end(tmp_path: Path) -> None:
    """Rungs make a driver wait for reports; what it waits for, the other one may have taken, and the reverse."""
    results = run_together(tmp_path, {"a": [1, 2, 3], "b": [3, 2, 1], "c": [2, 1, 3]}, search="halving")
    assert all(set(result["states"]) <= {"complete", "stopped"} for result in results.values())
