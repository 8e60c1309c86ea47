"""A study on a user's own backend: the same bits as on local processes, and it can be resumed like any other."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from examples.own_backend import InProcess, InProcessBackend

import hoptree as ht
from hoptree.backends import Backend, TrainingJob
from hoptree.store import Store
from hoptree.trainers.base import UnitSpec
from tests.system.plain import Plain, study

RATES = {"lr": ht.choice(0.1, ht.multistep(0.1, at=[1], gamma=0.5), 0.3), "act": "fine", "nap": 0.0, "where": ""}


def test_the_bits_are_those_of_local_processes(tmp_path: Path) -> None:
    local = study(tmp_path / "local", space=RATES, epochs=3).run(workers=2)
    own = study(tmp_path / "own", space=RATES, epochs=3)
    results = own.run(backend=InProcess())
    assert [trial.fingerprint for trial in results.trials] == [trial.fingerprint for trial in local.trials]
    assert results.savings.epochs_trained == local.savings.epochs_trained == 8  # of 9: one is shared
    assert own.run(backend=InProcess()).savings.epochs_trained == 0
    assert all(found.holds for found in own.verify())


def test_a_later_study_continues_from_what_it_saved(tmp_path: Path) -> None:
    first = study(tmp_path, epochs=2)
    first.run(backend=InProcess())
    with Store(tmp_path / "store", create=False) as store:
        entered = {record.key: record.held_by for record in store.ledger.all()}
        assert sorted(entered) == store.states.keys()
        assert ("plain",) in entered.values()
    longer = study(tmp_path, name="longer", epochs=3, data=first.data).run(workers=1)
    assert longer.savings.epochs_trained == 1
    again = study(tmp_path, name="longest", epochs=5, data=first.data).run(backend=InProcess())
    assert again.savings.epochs_trained == 2


def test_a_failing_config_is_a_failed_trial(tmp_path: Path) -> None:
    results = study(tmp_path, "fine", "raise", "leave").run(backend=InProcess())
    assert [trial.state for trial in results.trials] == ["complete", "failed", "failed"]
    assert "ValueError" in str(results.trials[1].error)


class BrokenError(Exception):
    pass


class Stops:
    """Breaks down after some units."""

    def __init__(self, units: int) -> None:
        self.units = units

    def open(self, job: TrainingJob) -> Backend:
        settings = self

        class Stopping(InProcessBackend):
            def train(self, action: Any) -> Any:
                settings.units -= 1
                return super().train(action)

            def wait(self, seconds: float | None = None) -> Any:
                if settings.units <= 0:
                    raise BrokenError
                return super().wait(seconds)

        return Stopping(job)


@pytest.mark.parametrize("units", [1, 4, 7])
def test_a_study_continues_after_its_backend_broke_down(tmp_path: Path, units: int) -> None:
    whole = study(tmp_path / "whole", space=RATES, epochs=3).run(backend=InProcess())
    broken = study(tmp_path / "broken", space=RATES, epochs=3)
    with pytest.raises(BrokenError):
        broken.run(backend=Stops(units))
    results = broken.run(backend=InProcess())
    assert [trial.fingerprint for trial in results.trials] == [trial.fingerprint for trial in whole.trials]


class Interrupts(Plain):
    """Ctrl-C comes in the middle of a unit, once."""

    units = 0

    def train(self, model: Any, data: Any, unit: UnitSpec) -> None:
        super().train(model, data, unit)
        type(self).units += 1
        if type(self).units == 3:
            os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_lets_the_unit_end_and_saves_what_there_is(tmp_path: Path) -> None:
    whole = study(tmp_path / "whole", space=RATES, epochs=3).run(backend=InProcess())
    stopped = study(tmp_path / "stopped", space=RATES, epochs=3, trainer=Interrupts())
    first = stopped.run(backend=InProcess())
    assert [trial.state for trial in first.trials] != [trial.state for trial in whole.trials]
    assert Interrupts.units <= 5  # the unit that ran, and what its worker had been given
    results = stopped.run(backend=InProcess())
    assert [trial.fingerprint for trial in results.trials] == [trial.fingerprint for trial in whole.trials]
    assert Interrupts.units == 16  # nothing is trained twice
