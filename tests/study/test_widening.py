"""Studies that are extended under their name, with real training, a real store and real kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hoptree as ht
from hoptree.store import Store
from tests.system.plain import dataset, study
from tests.system.processes import trained_units, units_done_twice
from tests.system.shared_store import await_that

RATES = {"lr": ht.log(0.01, 1.0), "act": "fine", "nap": 0.0, "where": ""}


def grid(*rates: float) -> dict[str, Any]:
    return {"lr": ht.choice(*rates), "act": ht.choice("a", "b"), "nap": 0.0, "where": ""}


VERSIONS: dict[str, list[tuple[Any, Any]]] = {
    "random": [
        (RATES, ht.Random(2, epochs=2)),
        (RATES, ht.Random(4, epochs=2)),
        (RATES, ht.Random(5, epochs=3)),
    ],
    "grid": [
        (grid(0.1), ht.Grid(epochs=2)),
        (grid(0.1, 0.2), ht.Grid(epochs=2)),
        (grid(0.05, 0.1, 0.2), ht.Grid(epochs=3)),
    ],
}


def make(folder: Path, version: tuple[Any, Any], **options: Any) -> ht.Study:
    return study(folder, space=version[0], search=version[1], **options)


def outcome(results: ht.Results) -> list[tuple[str, int, str, str]]:
    """Return the outcome of a study, without the numbers of its trials."""
    return sorted((repr(sorted(t.config.items())), t.epochs, t.state, t.fingerprint or "") for t in results.trials)


@pytest.mark.parametrize("kind", VERSIONS)
def test_it_ends_as_the_wider_search_does_and_trains_only_what_is_new(tmp_path: Path, kind: str) -> None:
    for name in ("grown", "whole"):
        (tmp_path / name).mkdir()
    data = dataset(tmp_path)
    trained = 0.0
    for version in VERSIONS[kind]:
        grown = make(tmp_path / "grown", version, data=data)
        expected = grown.explain(workers=1).left.epochs_trained
        results = grown.run(workers=1)
        assert results.savings.epochs_trained == expected > 0
        trained += results.savings.epochs_trained
        numbers = [trial.number for trial in results.trials]
        assert numbers == list(range(len(numbers)))
    whole = make(tmp_path / "whole", VERSIONS[kind][-1], data=data).run(workers=1)
    assert outcome(results) == outcome(whole)
    assert trained == whole.savings.epochs_trained
    again = grown.run(workers=1)
    assert again.savings.epochs_trained == 0
    assert outcome(again) == outcome(whole)
    assert all(check.holds for check in grown.verify())


def test_a_search_that_is_not_an_extension_is_refused_with_old_and_new_values(tmp_path: Path) -> None:
    first = make(tmp_path, (RATES, ht.Random(4, epochs=2)))
    first.run(workers=1)
    before = stored(tmp_path)
    for search, message in (
        (ht.Random(3, epochs=2), r"search: was Random\(trials=4.*is Random\(trials=3.*trials: was 4, is 3, which"),
        (ht.Random(5, epochs=2, sampler="sobol"), "does not extend it .sampler: was 'random', is 'sobol'"),
        (ht.MedianStopping(4, epochs=2), "does not extend it .was Random, is MedianStopping"),
        ([ht.Random(4, epochs=2)] * 2, "does not extend it .the number of procedures was 1, is 2"),
    ):
        other = make(tmp_path, (RATES, search))
        for act in (other.run, other.explain):
            with pytest.raises(ht.StudyChangedError, match=message):
                act(workers=1)
    other = make(tmp_path, ({**RATES, "lr": ht.log(0.01, 2.0)}, ht.Random(9, epochs=2)))
    with pytest.raises(ht.StudyChangedError, match=r"lr: was log\(0.01, 1.0\), is log\(0.01, 2.0\)"):
        other.run(workers=1)
    assert stored(tmp_path) == before


def stored(folder: Path) -> Any:
    with Store(folder / "store", create=False) as store:
        known = store.catalog.find("plain")
        assert known is not None
        return known.spec["versions"], store.journal.last("plain")


def test_a_narrower_search_is_refused_after_a_wider_one(tmp_path: Path) -> None:
    for version in VERSIONS["random"][:2]:
        make(tmp_path, version).run(workers=1)
    with pytest.raises(ht.StudyChangedError, match="trials: was 4, is 2, which is less"):
        make(tmp_path, VERSIONS["random"][0]).run(workers=1)
    assert len(stored(tmp_path)[0]["plain"]) == 2


def test_a_study_is_widened_alone_and_in_a_group(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    narrow, wide = (make(tmp_path, (RATES, ht.Random(n, epochs=2)), name="a", data=data) for n in (2, 4))
    other = make(tmp_path, (grid(0.1), ht.Grid(epochs=2)), name="b", data=data)
    narrow.run(workers=1)
    together = ht.run([narrow, other], workers=1)
    assert [len(results.trials) for results in together] == [2, 2]
    assert len(wide.run(workers=1).trials) == 4
    mine, theirs = ht.run([wide, other], workers=1)
    assert (len(mine.trials), len(theirs.trials)) == (4, 2)
    assert mine.savings.epochs_trained == 0  # alone, it had trained them
    with pytest.raises(ht.StudyChangedError, match="trials: was 4, is 2"):
        ht.run([narrow, other], workers=1)


def test_its_mirror_is_the_same_one(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    import optuna

    url = f"sqlite:///{tmp_path / 'optuna.db'}"
    for version in VERSIONS["grid"][:2]:
        make(tmp_path, version).run(workers=1, mirror=url)
    assert len(optuna.load_study(study_name="plain", storage=url).trials) == 4


def test_requests_of_users_stay(tmp_path: Path) -> None:
    first = make(tmp_path, VERSIONS["random"][0])
    first.run(workers=1)
    first.extend(0, 5)
    first.add({"lr": 0.3, "act": "fine", "nap": 0.0, "where": ""}, epochs=1)
    first.run(workers=1)
    results = make(tmp_path, VERSIONS["random"][2]).run(workers=1)
    assert sorted(trial.epochs for trial in results.trials) == [1, 3, 3, 3, 3, 5]


PROGRAM = """
import sys
from pathlib import Path
import hoptree as ht
from tests.system.plain import study

space = {"lr": ht.log(0.01, 1.0), "act": "fine", "nap": 0.05, "where": ""}
study(Path(sys.argv[1]), space=space, search=ht.Random(int(sys.argv[2]), epochs=int(sys.argv[3]))).run(workers=2)
"""


def test_killed_and_widened_twice(tmp_path: Path) -> None:
    for name in ("killed", "whole"):
        (tmp_path / name).mkdir()
        dataset(tmp_path / name)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    seen = 0
    for trials, epochs in ((3, 20), (5, 20)):
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "killed"), str(trials), str(epochs)]
        process = subprocess.Popen(command, env=environment)
        try:
            await_that(lambda seen=seen: units(tmp_path / "killed") > seen + 5)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        seen = units(tmp_path / "killed")
    slow = {**RATES, "nap": 0.05}
    results = study(tmp_path / "killed", space=slow, search=ht.Random(6, epochs=21)).run(workers=2)
    whole = study(tmp_path / "whole", space=slow, search=ht.Random(6, epochs=21)).run(workers=2)
    assert outcome(results) == outcome(whole)
    assert units_done_twice(tmp_path / "killed" / "store", "plain") == 0


def units(folder: Path) -> int:
    if not (folder / "store" / "journal.sqlite").exists():
        return 0
    try:
        return trained_units(folder, "plain")
    except ht.HoptreeError:
        return 0
