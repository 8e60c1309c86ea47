"""A trial has one number: in the journal, in requests of users, and where a study shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hoptree as ht
from hoptree.record.opening import last_snapshot
from hoptree.record.spec import StudySpec
from hoptree.store import Store
from tests.system.plain import dataset, study

RATES = {"lr": ht.log(0.01, 1.0), "act": "fine", "nap": 0.0, "where": ""}
CONFIG = {"lr": 0.5, "act": "fine", "nap": 0.0, "where": ""}


def journaled(folder: Path, name: str) -> dict[int, tuple[str, Any]]:
    """Return the study and the config of every trial by its number in a journal."""
    with Store(folder / "store", create=False) as store:
        spec = StudySpec.read(store.catalog.find(name).spec)  # type: ignore[union-attr]
        record, seq = last_snapshot(store, name, spec.settings)
        record.read(store.journal.read(name, seq))
        return {number: (trial.study, dict(trial.history[-1].config)) for number, trial in record.by_number.items()}


def shown(results: ht.Results) -> dict[int, Any]:
    return {trial.number: trial.config for trial in results.trials}


def test_two_searches_and_a_user_share_one_row_of_numbers(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    options: dict[str, Any] = {"space": RATES, "data": data}
    narrow = study(tmp_path, search=[ht.Random(2, epochs=1), ht.Random(3, epochs=1)], **options)
    narrow.run(workers=1)
    narrow.add(CONFIG, 1)
    results = narrow.run(workers=1)
    assert sorted(shown(results)) == list(range(6))
    assert shown(results)[5]["lr"] == 0.5
    assert {number: config for number, (_, config) in journaled(tmp_path, narrow.name).items()} == shown(results)
    wide = study(tmp_path, search=[ht.Random(4, epochs=1), ht.Random(3, epochs=1)], **options)
    wider = wide.run(workers=1)
    assert {number: shown(wider)[number] for number in range(6)} == shown(results)  # and two more
    assert {number: config for number, (_, config) in journaled(tmp_path, wide.name).items()} == shown(wider)


def test_in_a_group_every_study_counts_its_own(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    options: dict[str, Any] = {"space": RATES, "data": data}
    studies = [
        study(tmp_path, name="first", search=ht.Random(2, epochs=1), **options),
        study(tmp_path, name="second", search=ht.Random(3, epochs=1, every=1), **options),
    ]
    first, second = ht.run(studies, workers=1)
    assert (sorted(shown(first)), sorted(shown(second))) == ([0, 1], [0, 1, 2])
    with Store(tmp_path / "store", create=False) as store:
        (group,) = [known.name for known in store.catalog.all() if StudySpec.read(known.spec).members]
    trials = journaled(tmp_path, group)
    assert {number // 2: config for number, (of, config) in trials.items() if of == "first"} == shown(first)
    assert {number // 2: config for number, (of, config) in trials.items() if of == "second"} == shown(second)
