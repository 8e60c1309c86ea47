"""Forgetting a study removes everything that only it needs, and nothing that other studies need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import select

import hoptree as ht
from hoptree.backends.local import slot_folders_of_study
from hoptree.store import Store, StudyMissingError
from hoptree.store.tables import CLAIMS, ENTRIES, HOLDS, REPORTS, REQUESTS, STATES, STUDIES, WANTS
from hoptree.ui.cli import cli
from tests.system.plain import dataset, study

RATES = {"lr": 0.1, "nap": 0.0, "where": ""}


def make(folder: Path, name: str, *acts: Any, **options: Any) -> ht.Study:
    if not (folder / "data").exists():
        dataset(folder)
    space = {**RATES, "act": ht.choice(*acts)}
    return study(folder, name=name, space=space, data=ht.Dataset.open(folder / "data"), epochs=3, **options)


def clean(folder: Path, *arguments: str, answer: str | None = None) -> Result:
    command = ["clean", "--store", str(folder / "store"), "--keep", "1 GB", *arguments]
    return CliRunner().invoke(cli, command, input=answer)


def rows(folder: Path, table: Any) -> list[Any]:
    with Store(folder / "store") as store, store._database.reading() as connection:
        return list(connection.execute(select(table)).all())


def keys(folder: Path) -> set[str]:
    with Store(folder / "store") as store:
        return set(store.states.keys())


def test_alone_it_leaves_nothing_and_trains_from_scratch(tmp_path: Path) -> None:
    mine = make(tmp_path, "mine", "a", "exit", save_every=1)
    first = mine.run(workers=1)
    mine.add({**RATES, "act": "c"}, epochs=1)
    for folder in slot_folders_of_study(tmp_path / "store", "mine"):
        folder.mkdir(exist_ok=True)
        (folder / "slot").write_bytes(b"left by a driver that was killed")
    assert list((tmp_path / "store" / "logs").iterdir())
    assert clean(tmp_path, "--forget", "mine", "--yes").exit_code == 0
    for table in (STUDIES, ENTRIES, STATES, HOLDS, REPORTS, REQUESTS, CLAIMS, WANTS):
        assert rows(tmp_path, table) == [], table.name
    assert keys(tmp_path) == set()
    assert not list((tmp_path / "store" / "logs").iterdir())
    assert not any(folder.exists() for folder in slot_folders_of_study(tmp_path / "store", "mine"))
    again = make(tmp_path, "mine", "a", "exit", save_every=1).run(workers=1)
    assert again.savings.epochs_trained == first.savings.epochs_trained == 3
    assert [trial.fingerprint for trial in again.trials if trial.state == "complete"] == [first.best.fingerprint]


def test_what_another_study_needs_stays(tmp_path: Path) -> None:
    """They have the first two epochs of a trial in common, and all of another."""
    late = ht.piecewise(["a", "z"], at=[2])
    mine = make(tmp_path, "mine", "a", "b", "own", save_every=1)
    other = make(tmp_path, "other", late, "b", save_every=1)
    mine.run(workers=1)
    before = other.run(workers=1)
    held_keys = {row.key for row in rows(tmp_path, HOLDS) if row.study == "other"}
    reports = {row.key for row in rows(tmp_path, REPORTS)}
    with Store(tmp_path / "store") as store:
        summary = store.forget("mine")
    assert summary.states > 0 < summary.freed
    assert summary.entries > 0
    assert held_keys <= keys(tmp_path)
    assert {row.key for row in rows(tmp_path, HOLDS)} == held_keys
    left = {row.key for row in rows(tmp_path, REPORTS)}
    assert len(reports - left) == summary.reports == 3 + 1  # of "own", and of the last epoch of "a"
    after = make(tmp_path, "other", late, "b", save_every=1).run(workers=1)
    assert after.savings.epochs_trained == 0
    assert [t.fingerprint for t in after.trials] == [t.fingerprint for t in before.trials]
    assert all(check.holds for check in other.verify())
    again = make(tmp_path, "mine", "a", "b", "own").run(workers=1)
    assert [trial.state for trial in again.trials] == ["complete"] * 3
    assert again.savings.epochs_trained >= 4  # "own", and the end of "a"


def test_it_asks_for_confirmation_unless_confirmed_by_option(tmp_path: Path) -> None:
    make(tmp_path, "mine", "a").run(workers=1)
    for answer in ("n\n", "", None):
        result = clean(tmp_path, "--forget", "mine", answer=answer)
        assert result.exit_code == 0
        assert "Remove mine: trials, reports, logs, and " in result.output
        assert "Nothing was removed." in result.output
        assert len(rows(tmp_path, STUDIES)) == 1
    dry = clean(tmp_path, "--forget", "mine", "--json", answer="y\n")
    assert '"done": false' in dry.output
    done = clean(tmp_path, "--forget", "mine", answer="y\n")
    assert "Freed " in done.output
    assert rows(tmp_path, STUDIES) == rows(tmp_path, ENTRIES) == []


def test_a_running_or_unknown_study_is_refused(tmp_path: Path) -> None:
    make(tmp_path, "mine", "a").run(workers=1)
    make(tmp_path, "other", "b").run(workers=1)
    with Store(tmp_path / "store") as store, store.lease("other"):
        for arguments in (["--yes"], []):
            result = clean(tmp_path, "--forget", "mine", "--forget", "other", *arguments, answer="y\n")
            assert result.exit_code != 0
            assert "other: held by process" in str(result.exception)
            assert "Remove" not in result.output
    assert len(rows(tmp_path, STUDIES)) == 2
    result = clean(tmp_path, "--forget", "mien", "--yes")
    assert "mien: no such study in " in str(result.exception)
    with (
        Store(tmp_path / "store") as store,
        pytest.raises(StudyMissingError, match="mien: no such study in .*; nothing was removed"),
    ):
        store.forget("mien")


@pytest.mark.slow
def test_the_name_of_another_study_may_have_the_same_prefix(tmp_path: Path) -> None:
    make(tmp_path, "mine", "exit").run(workers=1)
    make(tmp_path, "mine-trial-1", "exit").run(workers=1)
    clean(tmp_path, "--forget", "mine", "--yes")
    assert [file.name for file in (tmp_path / "store" / "logs").iterdir()] == ["mine-trial-1-trial-0.txt"]


def test_forgetting_a_group_removes_the_requests_of_its_studies(tmp_path: Path) -> None:
    a, b = make(tmp_path, "a", "x"), make(tmp_path, "b", "y", "exit")
    ht.run([a, b], workers=1)
    a.extend(0, 5)
    clean(tmp_path, "--forget", "a+b", "--yes")
    for table in (STUDIES, ENTRIES, STATES, REPORTS, REQUESTS):
        assert rows(tmp_path, table) == [], table.name
    assert not list((tmp_path / "store" / "logs").iterdir())
    assert [trial.epochs for trial in make(tmp_path, "a", "x").run(workers=1).trials] == [3]
