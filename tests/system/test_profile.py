"""A profile is measured on real workers, kept in the store, and followed by later runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hoptree as ht
from hoptree.core.errors import RefusedError
from hoptree.core.events import WorkerJoined
from hoptree.core.facts import UnitGiven
from hoptree.core.profile import ProfileEntry
from hoptree.store import Store
from hoptree.trainers.torch_trainer import Torch
from tests.system.gang_nets import study, widths


def keep_profile(folder: Path, alone: float, two: float) -> None:
    """Enter what a profile would have found for the study of gang nets."""
    chosen = study(folder, "mlp")
    kind = chosen.trainer.device_kind()
    values = {"net": "mlp", "batch_size": 30}
    entries = [ProfileEntry(values, "single", 1, kind, alone, 0), ProfileEntry(values, "data", 2, kind, two, 0)]
    with chosen.open_store() as store:
        store.profiles.put(chosen.spec.trainer, chosen.spec.data, entries)


def first_width_with_two_workers(folder: Path) -> int:
    """Return how many workers were given the first unit that was given when two workers had joined."""
    joined = 0
    with Store(folder / "store", create=False) as store:
        for recorded in store.journal.read("gangs"):
            joined += isinstance(recorded.entry.event, WorkerJoined)
            for decided in recorded.entry.decided:
                if isinstance(decided, UnitGiven) and joined == 2:
                    return 1 + len(decided.crew)
    raise AssertionError("no unit was given to two workers")


def test_workers_measure_widths_and_the_store_keeps_them(tmp_path: Path) -> None:
    chosen = study(tmp_path, "mlp")
    report = chosen.profile(workers=2)
    found = [(entry.values, entry.layout, entry.devices) for entry in report.profile.entries]
    values = {"net": "mlp", "batch_size": 30}
    assert [each for each in found if each[1] in ("single", "data")] == [(values, "single", 1), (values, "data", 2)]
    assert ("single+offload", 1) in [each[1:] for each in found]
    assert report.measured == len(found) == len({each[1:] for each in found})
    for entry in report.profile.entries:
        assert entry.seconds > 0
        assert entry.peak_bytes > 10_000_000  # torch alone takes more
        assert entry.kind == chosen.trainer.device_kind()
        assert entry.version == ht.__version__
    again = study(tmp_path, "mlp").profile(workers=2)
    assert again.measured == 0
    assert [entry.seconds for entry in again.profile.entries] == [entry.seconds for entry in report.profile.entries]
    assert "does not pay" in str(report) or any(row["pays"] for row in report.rows() if row["devices"] == 2)
    with chosen.open_store() as store:
        assert store.catalog.all() == []
        assert store.journal.last("gangs") == 0
        assert not list(store.states.keys())


def test_a_profile_changes_no_bits_and_no_journal(tmp_path: Path) -> None:
    before = study(tmp_path / "plain", "mlp", epochs=1).run(workers=1, quiet=True)
    chosen = study(tmp_path / "profiled", "mlp", epochs=1)
    chosen.profile(workers=2)
    results = chosen.run(workers=1, quiet=True)
    assert results.best.fingerprint == before.best.fingerprint
    with chosen.open_store() as store:
        last, states = store.journal.last("gangs"), sorted(store.states.keys())
        chosen.profile(workers=2, again=True)
        assert (store.journal.last("gangs"), sorted(store.states.keys())) == (last, states)


def test_configs_that_differ_in_what_the_model_does_not_read_are_one_architecture(tmp_path: Path) -> None:
    def net(hp: Any) -> nn.Module:
        return nn.Sequential(nn.Linear(4, hp["width"]), nn.Linear(hp["width"], 2))

    x = np.random.default_rng(0).random((80, 4), dtype=np.float32)
    chosen = ht.Study(
        "several",
        trainer=Torch(net, loss=nn.functional.cross_entropy),
        data=ht.Dataset.from_arrays(x=x, y=np.arange(80) % 2, partitions=2, valid=0.2, to=tmp_path / "data"),
        space={"width": ht.choice(4, 8), "lr": ht.choice(0.1, 0.2, 1e30), "batch_size": 8},
        search=ht.Grid(epochs=1),
        minimize="loss",
        store=tmp_path / "store",
    )
    report = chosen.profile(workers=2)
    found = [(entry.values, entry.layout) for entry in report.profile.entries]
    whole = [each for each in found if each[1] == "single"]
    assert sorted(whole, key=str) == [({"batch_size": 8, "width": width}, "single") for width in (4, 8)]
    assert report.measured == len(found)
    assert not report.failed


def test_a_study_whose_configs_cannot_be_trained_is_refused_with_the_users_error(tmp_path: Path) -> None:
    def net(hp: Any) -> nn.Module:
        raise ValueError("no such net")

    x = torch.zeros(8, 4)
    chosen = ht.Study(
        "broken",
        trainer=Torch(net, loss=nn.functional.mse_loss),
        data=ht.Dataset.from_arrays(x=x, y=x, partitions=1, to=tmp_path / "data"),
        space={"lr": ht.choice(0.1, 0.2)},
        search=ht.Grid(epochs=1),
        minimize="loss",
        store=tmp_path / "store",
    )
    with pytest.raises(RefusedError, match="no such net"):
        chosen.profile(workers=1)


def test_a_profile_that_does_not_pay_leads_to_no_gangs(tmp_path: Path) -> None:
    keep_profile(tmp_path, alone=0.01, two=100.0)
    results = study(tmp_path, "mlp").run(workers=2, quiet=True)
    assert [trial.state for trial in results.trials] == ["complete"]
    assert widths(tmp_path) == [1] * 6
    forecast = study(tmp_path, "mlp").explain(workers=2)
    assert [(row["devices"], row["pays"]) for row in forecast.profile] == [(1, True), (2, False)]
    assert "does not pay" in str(forecast)


def test_a_profile_that_pays_leads_to_gangs_at_once(tmp_path: Path) -> None:
    keep_profile(tmp_path, alone=100.0, two=0.01)
    results = study(tmp_path, "mlp").run(workers=2, quiet=True)
    assert [trial.state for trial in results.trials] == ["complete"]
    assert first_width_with_two_workers(tmp_path) == 2
