"""What a changed environment does to a study: what is reused, what is refused, and what starts again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import hoptree as ht
from hoptree.backends.local import LocalPool
from hoptree.core.errors import StudyChangedError, WorkloadError
from hoptree.record.opening import open_record
from hoptree.store import Store
from tests.system.plain import Plain, study


class Edited(Plain):
    """Other code: its results differ, and so does its fingerprint."""

    fingerprint = "edited"

    def build(self, values: Mapping[str, Any], seed: int) -> Any:
        model = super().build(values, seed)
        model["w"] += 1.0
        return model


class OtherPlatform(Plain):
    """The same code on another platform, which an environment variable sets."""

    def platform(self) -> dict[str, str]:
        return {**super().platform(), "kernels": os.environ.get("TEST_KERNELS", "avx2")}


class MixedPlatforms(Plain):
    """Workers differ in platform: the one that creates a folder first has one platform, the others another."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def platform(self) -> dict[str, str]:
        try:
            (self.folder / "first").mkdir(parents=True)
        except FileExistsError:
            return {**super().platform(), "kernels": "avx2"}
        return {**super().platform(), "kernels": "default"}


def grid(folder: Path, name: str, **options: Any) -> ht.Study:
    """Return a study whose configs are the same in any folder."""
    return study(folder, name=name, **{"space": {"lr": ht.choice(0.5, 0.25)}, "epochs": 2, **options})


def names(folder: Path) -> set[str]:
    with Store(folder / "store", create=False) as store:
        return set(store.states.keys())


def test_accepted_changes_are_trained_under_another_name(tmp_path: Path) -> None:
    """Study A continues with other code; other studies reuse only what their own code has trained."""
    before = grid(tmp_path, "A").run(workers=2)
    old = names(tmp_path)
    with pytest.raises(StudyChangedError, match="trainer"):
        grid(tmp_path, "A", trainer=Edited()).run(workers=2)
    same = grid(tmp_path, "A", trainer=Edited()).run(workers=2, accept_changes=True)
    assert [t.fingerprint for t in same.trials] == [t.fingerprint for t in before.trials]  # complete: as they are
    assert same.savings.epochs_trained == 0
    changed = grid(tmp_path, "A", trainer=Edited())
    changed.extend(0, 4)
    extended = changed.run(workers=2)
    assert extended.savings.epochs_trained == 4  # from its beginning
    assert extended.trials[1].fingerprint == before.trials[1].fingerprint
    innocent = grid(tmp_path, "B", epochs=4).run(workers=2)
    fresh = grid(tmp_path / "fresh", "B", epochs=4).run(workers=2)
    assert [t.fingerprint for t in innocent.trials] == [t.fingerprint for t in fresh.trials]
    assert innocent.savings.epochs_reused >= 2
    assert old <= names(tmp_path)  # nothing of them was written over or dropped
    new = grid(tmp_path, "C", trainer=Edited(), epochs=4).run(workers=2)
    expected = grid(tmp_path / "new", "C", trainer=Edited(), epochs=4).run(workers=2)
    assert [t.fingerprint for t in new.trials] == [t.fingerprint for t in expected.trials]
    assert new.trials[0].fingerprint == extended.trials[0].fingerprint
    assert new.savings.epochs_reused > 0
    assert {t.fingerprint for t in new.trials}.isdisjoint(t.fingerprint for t in innocent.trials)


def test_a_running_trial_begins_again_with_the_new_code(tmp_path: Path) -> None:
    kind = {"act": "needs", "where": str(tmp_path / "there"), "lr": 0.5}
    one = {"space": kind, "epochs": 2}
    failed = study(tmp_path, **one, trainer=Lenient()).run(workers=1)
    assert failed.trials[0].state == "failed"
    (tmp_path / "there").touch()
    again = study(tmp_path, **one, trainer=LenientEdited()).run(workers=1, accept_changes=True)
    fresh = study(tmp_path / "fresh", **one, trainer=LenientEdited()).run(workers=1)
    assert again.trials[0].fingerprint == fresh.trials[0].fingerprint
    with Store(tmp_path / "store", create=False) as store:
        known = store.catalog.find("plain")
        assert known is not None
        (trial,) = open_record(store, known).trials
    assert (trial.ending, len(trial.earlier), trial.retries) == ("complete", 1, 1)


class Lenient(Plain):
    """Passes rehearsal, whatever its config needs."""

    fingerprint = "lenient"

    def train(self, model: Any, data: Any, unit: Any) -> None:
        if unit.partitions > 1:
            super().train(model, data, unit)


class LenientEdited(Lenient):
    """The same, with other results."""

    fingerprint = "lenient edited"

    def build(self, values: Mapping[str, Any], seed: int) -> Any:
        model = super().build(values, seed)
        model["w"] += 1.0
        return model


def test_states_of_another_platform_are_not_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings: dict[str, Any] = {"trainer": OtherPlatform(), "epochs": 2}
    study(tmp_path, "a", name="first", **settings).run(workers=1)
    monkeypatch.setenv("TEST_KERNELS", "default")
    longer = study(tmp_path, "a", name="first", **settings)
    longer.extend(0, 3)
    with pytest.raises(StudyChangedError, match="kernels was avx2, is default"):
        longer.run(workers=1)
    other = study(tmp_path, "a", name="other", **settings).run(workers=1)
    assert other.savings.epochs_trained == 2
    assert [r for r in caplog.records if "kernels was avx2, is default" in r.message]
    monkeypatch.setenv("TEST_KERNELS", "avx2")
    back = study(tmp_path, "a", name="back", **settings).run(workers=1)
    assert back.savings.epochs_trained == 0
    accepted = study(tmp_path, "a", name="first", **settings).run(workers=1)  # what it was extended to
    assert (accepted.trials[0].epochs, accepted.savings.epochs_trained) == (3, 1)


class BySize(Plain):
    """Its results depend on the size of a file, which it does not open: neither code nor observation shows it."""

    fingerprint = "by size"

    def train(self, model: Any, data: Any, unit: Any) -> None:
        super().train(model, data, unit)
        model["w"] += float(os.path.getsize(str(unit.at(0, 1)["where"])))


@pytest.mark.parametrize("how", ["longer search", "user"])
def test_a_complete_trial_is_not_extended_by_code_that_trains_other_bits(tmp_path: Path, how: str) -> None:
    (tmp_path / "flag").write_bytes(b"1")
    study(tmp_path, trainer=BySize()).run(workers=1, quiet=True)
    (tmp_path / "flag").write_bytes(b"123")
    longer = study(tmp_path, trainer=BySize(), epochs=2 if how == "user" else 3)
    if how == "user":
        longer.extend(0, 3)
    with pytest.raises(StudyChangedError, match="the same code trained other bits"):
        longer.run(workers=1, quiet=True)
    (tmp_path / "flag").write_bytes(b"1")
    assert longer.run(workers=1, quiet=True).savings.epochs_trained == 1


def test_workers_that_come_later_on_another_platform_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unlike = grid(tmp_path, "plain", trainer=MixedPlatforms(tmp_path / "kinds")).run(workers=2)
    assert [trial.state for trial in unlike.trials] == ["complete"] * 2
    with Store(tmp_path / "store", create=False) as store:
        known = store.catalog.find("plain")
        assert known is not None
        assert len(store.origins.find(known.spec["root"])) == 1
    alone = grid(tmp_path / "alone", "plain").run(workers=2)
    assert [t.fingerprint for t in unlike.trials] == [t.fingerprint for t in alone.trials]


def test_a_study_that_reuses_nothing(tmp_path: Path) -> None:
    first = study(tmp_path, "a", name="first", epochs=2).run(workers=1)
    own = study(tmp_path, "a", name="own", epochs=2, reuse="never")
    assert own.run(workers=1).savings.epochs_trained == 2
    own.extend(0, 3)
    again = own.run(workers=1)
    assert again.savings.epochs_trained == 1  # its own states are its own
    second = study(tmp_path, "a", name="second", epochs=3).run(workers=1)
    assert second.savings.epochs_trained == 1  # the third epoch, which only the other one has trained
    assert second.trials[0].fingerprint == again.trials[0].fingerprint
    assert first.trials[0].curve[2] == again.trials[0].curve[2]
    with pytest.raises(StudyChangedError, match="reuse: was never, is always"):
        study(tmp_path, "a", name="own", epochs=2).run(workers=1)
    with pytest.raises(WorkloadError, match="reuse: 'sometimes'"):
        study(tmp_path, "a", reuse="sometimes")


def test_workers_on_different_platforms_form_a_new_variant_or_one_kind_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Processes of one machine stand for those of several: all report their platform before training starts."""
    monkeypatch.setattr(LocalPool, "one_machine", False)

    def run(name: str, **options: Any) -> tuple[ht.Results, str]:
        found = grid(tmp_path, name, trainer=MixedPlatforms(tmp_path / name)).run(workers=2, **options)
        with Store(tmp_path / "store", create=False) as store:
            known = store.catalog.find(name)
        assert known is not None
        return found, ", ".join(known.spec["platform"])

    mixed, platform = run("mixed")
    assert platform == "mixture"
    assert [r for r in caplog.records if "same_platform=True" in r.message and "kernels" in r.message]
    again, _ = run("again")
    assert again.savings.epochs_trained == 0  # another mixture of the same kinds
    one, platform = run("one", same_platform=True)
    assert "kernels" in platform
    assert one.savings.epochs_trained == 4
    assert [t.fingerprint for t in one.trials] == [t.fingerprint for t in mixed.trials]
