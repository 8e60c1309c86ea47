"""Several studies in one engine, and several searches in one study: common work is trained once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hoptree as ht
from tests.system.plain import Plain, dataset, study


def test_studies_that_run_together_share(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    a = study(tmp_path, "x", "y", name="a", data=data)
    b = study(tmp_path, "y", "z", name="b", data=data, epochs=3)
    first, second = ht.run([a, b], workers=2)
    assert first.savings.epochs_asked == 2 + 2 + 3 + 3
    assert first.savings.epochs_trained == 2 + 3 + 3
    assert [trial.number for trial in second.trials] == [0, 1]
    assert [trial.config["act"] for trial in second.trials] == ["y", "z"]
    assert first.trials[1].curve == {epoch: second.trials[0].curve[epoch] for epoch in (1, 2)}
    assert all(check.holds for check in [*a.verify(), *b.verify()])
    again = ht.run([a, b], workers=2)
    assert again[0].savings.epochs_trained == 0
    assert [t.fingerprint for t in again[1].trials] == [t.fingerprint for t in second.trials]
    assert b.run(workers=1).savings.epochs_trained == 0  # alone, too: the store knows it all


def test_several_searches_in_one_study(tmp_path: Path) -> None:
    space = {"lr": ht.log(0.01, 1.0), "act": "fine", "nap": 0.0, "where": ""}
    search = [ht.Random(trials=3, epochs=2), ht.SuccessiveHalving(trials=4, max_epochs=2, factor=2)]
    results = study(tmp_path, space=space, search=search).run(workers=2)
    assert len(results.trials) == 7
    assert {trial.state for trial in results.trials} == {"complete", "stopped"}
    assert study(tmp_path, space=space, search=search).run(workers=2).savings.epochs_trained == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "a"}, "are not unique"),
        ({"seed": 1}, "'b' and 'a' differ in seed"),
        ({"trainer": Plain(17), "share": False}, "'b' and 'a' differ in share"),
    ],
)
def test_studies_that_have_nothing_to_share_are_refused(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    data = dataset(tmp_path)
    other = study(tmp_path, "y", data=data, **{"name": "b", **change})
    with pytest.raises(ht.WorkloadError, match=message):
        ht.run([study(tmp_path, "x", name="a", data=data), other])
    with pytest.raises(ht.WorkloadError, match="none given"):
        ht.run([])
    for wrong in (other, [other, None], None):
        with pytest.raises(ht.WorkloadError, match=r"studies: .*; expected a list of studies"):
            ht.run(wrong)  # type: ignore[arg-type]


def test_a_study_is_the_same_one_alone_and_in_a_group(tmp_path: Path) -> None:
    data = dataset(tmp_path)

    def make(name: str, *acts: str, **options: Any) -> ht.Study:
        return study(tmp_path, *acts, name=name, data=data, **options)

    ht.run([make("a", "x"), make("b", "y")], workers=1, quiet=True)
    make("b", "y").run(workers=1, quiet=True)
    for wrong, message in (
        (make("a", "z"), r"study 'a' differs .* \(act\[0\]: was 'x', is 'z'\)"),
        (make("a", "x", epochs=1), r"study 'a' differs .* \(search: was a: Grid\(epochs=2.*is Grid\(epochs=1"),
        (make("a", "x", trainer=Other()), "study 'a': trainer changed"),
    ):
        for begin in (wrong.run, wrong.explain):
            with pytest.raises(ht.StudyChangedError, match=message):
                begin(workers=1)
    with pytest.raises(ht.StudyChangedError, match=r"study 'b' differs .* \(act\[0\]: was 'y', is 'z'\)"):
        ht.run([make("c", "x"), make("b", "z")], workers=1)
    assert len(make("a", "x").results().trials) == 1


class Other(Plain):
    fingerprint = "other"
