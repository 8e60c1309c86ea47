"""Trials of other code are neither retrained nor verified."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hoptree.core.errors import StudyChangedError
from tests.system.plain import Plain, dataset, study


class Other(Plain):
    fingerprint = "other"


def test_a_lost_state_is_not_trained_again_with_other_code(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    first = study(tmp_path, data=data).run(workers=1)
    fingerprint = first.best.fingerprint
    shutil.rmtree(tmp_path / "store" / "states")
    assert study(tmp_path, data=data).results().best.fingerprint == fingerprint  # the same code makes it again
    shutil.rmtree(tmp_path / "store" / "states", ignore_errors=True)
    changed = study(tmp_path, data=data, trainer=Other())
    with pytest.raises(StudyChangedError, match="trial 0: its state is missing"):
        changed.results().best.load()


def test_other_code_verifies_nothing(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    study(tmp_path, data=data).run(workers=1)
    assert [each.holds for each in study(tmp_path, data=data).verify()] == [True]
    with pytest.raises(StudyChangedError, match=r"trials \[0\] were trained with other code"):
        study(tmp_path, data=data, trainer=Other()).verify()
