"""Studies one after another on one store: no epoch is trained twice, and the disk budget is kept."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hoptree as ht
from hoptree.core.events import ReportFound, StateFound
from hoptree.driver.state_reuse import StateIndex
from hoptree.store import Store
from hoptree.store.reports import report_rows
from tests.core.driver import Driver
from tests.system.plain import Plain, study


def test_a_second_study_trains_only_what_is_new(tmp_path: Path) -> None:
    first = study(tmp_path, "a", "b", epochs=2).run(workers=2)
    longer = study(tmp_path, "b", "c", name="longer", epochs=3).run(workers=2)
    assert longer.savings.epochs_trained == 1 + 3  # b goes on from its second epoch
    assert longer.savings.epochs_reused == 2
    assert longer.trials[0].curve[2] == first.trials[1].curve[2]
    alone = study(tmp_path, "b", "c", name="alone", epochs=3, share=False).run(workers=2)
    assert alone.savings.epochs_trained == 6
    assert [t.fingerprint for t in alone.trials] == [t.fingerprint for t in longer.trials]
    same = study(tmp_path, "c", "b", name="same", epochs=3).run(workers=2)
    assert same.savings.epochs_trained == 0
    assert [t.fingerprint for t in same.trials] == [t.fingerprint for t in reversed(longer.trials)]


class SlowTrainer(Plain):
    """Trains for so long that its states are worth saving."""

    fingerprint = "thoughtful"

    def train(self, model: Any, data: Any, unit: Any) -> None:
        time.sleep(0.02)
        super().train(model, data, unit)


def test_a_study_that_branches_from_the_middle_of_another_trains_only_what_is_new(tmp_path: Path) -> None:
    """The first study does not need its state after epoch 2, but saves it to disk."""
    settings: dict[str, Any] = {"trainer": SlowTrainer(), "epochs": 4}
    study(tmp_path, space={"lr": 0.1}, **settings).run(workers=1)
    parting = {"lr": ht.multistep(0.1, at=[2], gamma=0.5)}
    later = study(tmp_path, name="later", space=parting, **settings).run(workers=1)
    assert later.savings.epochs_trained == 2
    assert later.savings.epochs_reused == 2
    alone = study(tmp_path, name="alone", space=parting, share=False, **settings).run(workers=1)
    assert alone.trials[0].fingerprint == later.trials[0].fingerprint
    with Store(tmp_path / "store", create=False) as store:
        spare = [record for record in store.ledger.all() if not record.held_by]
    assert spare
    assert all(record.seconds > 0 for record in spare)


def test_no_spare_states_where_the_disk_has_no_room_for_them(tmp_path: Path) -> None:
    study(tmp_path, trainer=SlowTrainer(), epochs=3, keep=0).run(workers=1)
    with Store(tmp_path / "store", create=False) as store:
        assert len(store.ledger.all()) == 1


def test_a_shorter_study_gets_stored_reports_and_trains_its_weights_on_demand(tmp_path: Path) -> None:
    long = study(tmp_path, epochs=3).run(workers=1)
    short = study(tmp_path, name="short", epochs=2).run(workers=1)
    assert short.savings.epochs_trained == 0
    assert short.trials[0].curve == {epoch: long.trials[0].curve[epoch] for epoch in (1, 2)}
    assert short.trials[0].fingerprint != long.trials[0].fingerprint
    unshared = study(tmp_path, name="unshared", epochs=2, share=False).run(workers=1)
    assert short.trials[0].fingerprint == unshared.trials[0].fingerprint


def test_a_report_that_is_no_number_is_found_again(tmp_path: Path) -> None:
    study(tmp_path, "nan").run(workers=1)
    again = study(tmp_path, "nan", name="again").run(workers=1)
    assert again.savings.epochs_trained == 0
    assert math.isnan(again.trials[0].metrics["loss"])


def test_other_code_or_another_seed_shares_nothing(tmp_path: Path) -> None:
    class Other(Plain):
        fingerprint = "other"

    study(tmp_path).run(workers=1)
    assert study(tmp_path, name="code", trainer=Other()).run(workers=1).savings.epochs_trained == 2
    assert study(tmp_path, name="seed", seed=1).run(workers=1).savings.epochs_trained == 2


def test_unneeded_states_are_kept_within_the_budget(tmp_path: Path) -> None:
    """The second study resumes from the first one's states, so they stay until no study holds them."""
    size = 1 << 15  # states of 256 KiB
    study(tmp_path, "a", trainer=Plain(size), epochs=1).run(workers=1)  # one epoch: one state
    with Store(tmp_path / "store") as store:
        (only,) = store.ledger.all()
        assert (only.study, only.held_by) == ("plain", ("plain",))
        assert only.size >= size * 8
        store.ledger.release([only.key], "plain")
        assert store.ledger.evict(budget=1 << 20) == []
        assert [record.key for record in store.ledger.evict(budget=0)] == [only.key]
        assert store.states.keys() == []
        assert store.ledger.all() == []


@pytest.mark.parametrize("keep", ["much", None, True, "10 XB", "nan", "-1 GB", -1.0])
def test_invalid_sizes_are_refused(tmp_path: Path, keep: object) -> None:
    with pytest.raises(ht.HoptreeError, match=f"keep: {keep!r}; expected (a size such as '10 GB'|0 or more)"):
        study(tmp_path, keep=keep)


def test_a_size_may_be_a_number(tmp_path: Path) -> None:
    assert study(tmp_path, keep=1e9).keep == study(tmp_path, keep="1 GB").keep == 10**9


def test_a_report_ends_a_trial_only_if_its_state_is_stored(tmp_path: Path) -> None:
    """A driver that was killed may have evaluated a state that it had not saved yet."""
    driver = Driver(ahead=False)
    driver.ask(0, 0.1, until=2, every=1)
    node = driver.engine.plan.nodes[1]
    first, last = node.state_key(2), node.state_key(4)
    with Store(tmp_path / "store") as store:
        for table, rows in report_rows({first: {"loss": 1.0}, last: {"loss": 0.5}}, "killed"):
            store._database.write(
                lambda link, table=table, rows=rows: store._database.insert_missing(link, table, rows)
            )
        index = StateIndex(store, "study", 10**9)
        assert index.find(node, 0, 2) == [ReportFound(1, 2, {"loss": 1.0})]
        store.states.put(last, {"w": np.zeros(1)}, {})
        assert index.find(node, 0, 2) == [
            StateFound(1, 4),
            ReportFound(1, 2, {"loss": 1.0}),
            ReportFound(1, 4, {"loss": 0.5}),
        ]
