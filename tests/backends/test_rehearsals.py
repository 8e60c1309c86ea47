"""Each probe is reported once, those of one machine are compared, and every kind of config is tried."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hoptree.backends.local import LocalPool
from hoptree.backends.pool_backend import PoolBackend
from hoptree.backends.rehearsals import RehearsalConfig, Rehearsals
from hoptree.core.errors import RefusedError
from hoptree.core.events import WorkerJoined
from hoptree.driver.state_reuse import StateIndex
from hoptree.store import Store
from hoptree.testing.training import make_job
from hoptree.trainers.probe import probe
from hoptree.worker.messages import RehearsalResult

ONE, TWO = {"lr": 0.1, "net": "a"}, {"lr": 0.2, "net": "b"}


def answer(values: dict[str, Any], probe: str, **parts: str) -> RehearsalResult:
    return RehearsalResult(["loss"], [], 0.1, probes=[(values, probe)], parts=parts)


def test_a_probe_is_reported_once() -> None:
    probed: list[tuple[Mapping[str, Any], str]] = []
    configs = [RehearsalConfig(ONE)]
    rehearsals = Rehearsals(configs, ["loss"], lambda values, found, _: probed.append((values, found)))
    assert not rehearsals.wants_second("n")
    rehearsals.compare("n", {}, answer(ONE, "p", w="1"))
    assert rehearsals.wants_second("n")
    assert not rehearsals.wants_second("m")
    rehearsals.compare("n", {}, answer(ONE, "p", w="1"))
    rehearsals.compare("m", {}, answer(ONE, "q", w="2"))  # another machine may round differently
    assert not rehearsals.wants_second("n")
    assert probed == [(ONE, "p")]
    rehearsals.compare("k", {"kernels": "other"}, answer(ONE, "r", w="3"))  # of another platform
    assert probed == [(ONE, "p"), (ONE, "r")]


def test_processes_of_one_machine_must_agree() -> None:
    rehearsals = Rehearsals([RehearsalConfig(ONE)], ["loss"])
    rehearsals.compare("n", {}, answer(ONE, "p", v="1", w="1"))
    with pytest.raises(RefusedError, match=r"first in w \(with lr=0.1, net='a'\)"):
        rehearsals.compare("n", {}, answer(ONE, "q", v="1", w="2"))


def test_a_trainer_that_is_not_reproducible_is_refused() -> None:
    with pytest.raises(RefusedError, match="because of w"):
        Rehearsals([], ["loss"]).compare("", {}, RehearsalResult([], [], refused="because of w"))


def test_kinds_of_configs_differ_in_non_numeric_values() -> None:
    configs = [ONE, {"lr": 0.3, "net": "a"}, TWO, {"lr": 0.1, "net": "b"}, {"lr": 0.1, "net": "b", "deep": True}]
    rehearsals = Rehearsals([RehearsalConfig(values, {"lr": 9.0}) for values in configs], ["loss"])
    command = rehearsals.other_kinds(answer(ONE, "p"))
    assert command is not None
    assert command.configs == [TWO, configs[-1]]
    assert command.later == [{"lr": 9.0}] * 2
    assert command.all_kinds
    assert Rehearsals([RehearsalConfig(ONE)], ["loss"]).other_kinds(answer(ONE, "p")) is None


def test_a_pool_reports_the_probes_before_any_event(tmp_path: Path) -> None:
    job = make_job(tmp_path, workers=2)
    probed: list[tuple[Mapping[str, Any], str]] = []
    pool = LocalPool(job.trainer, job.dataset, job.states, workers=2, slots=[tmp_path / "slots"], token=1)
    configs = [RehearsalConfig(ONE), RehearsalConfig({"lr": 0.3, "net": "a"}), RehearsalConfig(TWO)]
    with Store(tmp_path / "store") as store:
        backend = PoolBackend(
            pool,
            job.states,
            seed=0,
            ledger=StateIndex(store, "s", 10**9),
            rehearsals=Rehearsals(configs, ["loss"], lambda values, found, _: probed.append((values, found))),
        )
        backend.start()
        try:
            expected = [
                (values, probe(job.trainer, values, job.dataset.partition(0), job.dataset.valid()))
                for values in (ONE, TWO)
            ]
            assert probed == expected
            assert {type(event) for event in backend.wait()[1]} == {WorkerJoined}
        finally:
            backend.stop(failed=False)
