"""A study whose journal is in PostgreSQL runs, resumes and verifies like any other."""

from __future__ import annotations

from pathlib import Path

from hoptree.store import Store
from tests.system.plain import study


def test_a_study_keeps_its_journal_in_postgresql(tmp_path: Path, postgresql: str) -> None:
    first = study(tmp_path, "a", "b", journal=postgresql).run(workers=2)
    assert [trial.state for trial in first.trials] == ["complete", "complete"]
    again = study(tmp_path, "a", "b", journal=postgresql).run(workers=2)
    assert again.savings.epochs_trained == 0
    assert [t.fingerprint for t in again.trials] == [t.fingerprint for t in first.trials]
    assert all(check.holds for check in study(tmp_path, "a", "b", journal=postgresql).verify())
    assert not (tmp_path / "store" / "journal.sqlite").exists()
    with Store(tmp_path / "store", journal_url=postgresql) as store:
        assert [record.status for record in store.catalog.all()] == ["finished"]
