"""Models that need more memory than a worker may use are trained in another layout, to the same bits."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hoptree as ht
from hoptree.core.errors import RefusedError
from hoptree.core.facts import UnitGiven
from hoptree.store import Store
from tests.system.bulky import LIMIT, TOO_LARGE, Bulky


def study(folder: Path, trainer: Bulky, *, model: Any = 8, step: Any = 8, epochs: int = 1, **more: Any) -> ht.Study:
    x = np.arange(40, dtype=np.float32)
    data = ht.Dataset.from_arrays(x=x, partitions=2, valid=0.25, to=folder / "data")
    return ht.Study(
        "bulky",
        trainer=trainer,
        data=data,
        space={"lr": 0.1, "model": model, "step": step},
        search=ht.Grid(epochs=epochs),
        minimize="loss",
        store=folder / "store",
        **more,
    )


def run(study: ht.Study, workers: int = 1, limit: float | None = LIMIT) -> Any:
    return study.run(workers=workers, quiet=True, memory_per_worker=limit)


def layouts(folder: Path) -> list[tuple[str, int]]:
    """Return the layout of each unit that was given to workers, and with how many workers."""
    with Store(str(folder / "store")) as store:
        entries = [recorded.entry for recorded in store.journal.read("bulky", 0)]
    given = [each for entry in entries for each in entry.decided if isinstance(each, UnitGiven)]
    return [(each.layout, 1 + len(each.crew)) for each in given]


def test_a_model_above_the_limit_is_rehearsed_trained_and_evaluated_offloaded(tmp_path: Path) -> None:
    (large,) = run(study(tmp_path / "large", Bulky(), model=TOO_LARGE)).trials
    (small,) = run(study(tmp_path / "small", Bulky(), model=8)).trials
    assert (large.state, small.state) == ("complete", "complete")
    assert large.metrics.keys() == small.metrics.keys()
    assert {name for name, _ in layouts(tmp_path / "small")} == {"single"}
    assert layouts(tmp_path / "large")[-1] == ("single+offload", 1)


def test_a_unit_above_the_limit_moves_on_and_later_runs_remember_it(tmp_path: Path) -> None:
    trainer = Bulky()
    (first,) = run(study(tmp_path, trainer, step=TOO_LARGE)).trials
    assert first.state == "complete"
    before = len(layouts(tmp_path))
    assert layouts(tmp_path)[0] == ("single", 1)
    with Store(str(tmp_path / "store")) as store:
        (known,) = store.profiles.find(*_fingerprints(study(tmp_path, trainer, step=TOO_LARGE))).entries
    assert (known.layout, known.devices, known.seconds, known.peak_bytes) == ("single", 1, inf, LIMIT)
    run(study(tmp_path, trainer, step=TOO_LARGE, epochs=2))
    assert {name for name, _ in layouts(tmp_path)[before:]} == {"single+offload"}


def test_a_model_is_divided_among_workers_before_it_is_offloaded(tmp_path: Path) -> None:
    (trial,) = run(study(tmp_path, Bulky(shards=2), model=3 * LIMIT // 2), workers=2).trials
    assert trial.state == "complete"
    assert layouts(tmp_path)[-1] == ("sharded", 2)


def test_a_trial_fails_if_no_layout_fits_and_the_others_are_trained(tmp_path: Path) -> None:
    trials = run(study(tmp_path, Bulky(offloads=False), step=ht.choice(8, TOO_LARGE))).trials
    found = {trial.config["step"]: trial for trial in trials}
    assert found[8].state == "complete"
    assert found[TOO_LARGE].state == "failed"
    assert "8.59 GB" in found[TOO_LARGE].error
    assert "68.72 GB" in found[TOO_LARGE].error


def test_a_profile_shows_what_does_not_fit_and_runs_begin_with_what_does(tmp_path: Path) -> None:
    chosen = study(tmp_path, Bulky(shards=2), model=3 * LIMIT // 2)
    report = chosen.profile(workers=2, memory_per_worker=LIMIT)
    found = {(row["layout"], row["devices"]): row["fits"] for row in report.rows()}
    assert found == {
        ("single", 1): False,
        ("single+offload", 1): True,
        ("sharded", 2): True,
        ("sharded+offload", 2): True,
    }
    assert "does not fit" in str(report)
    assert chosen.profile(workers=2, memory_per_worker=LIMIT).measured == 0
    run(chosen, workers=2)
    assert {(name.partition("+")[0], devices) for name, devices in layouts(tmp_path)} == {("sharded", 2)}


@pytest.mark.parametrize(
    ("layout", "offload", "message"),
    [
        ("pipelin", None, "layout: 'pipelin' is not known to Bulky; expected 'auto' or 'single', 'pipeline'"),
        ("pipeline", None, "layout: 'pipeline': the model has one layer"),
        ("single", True, "offload: True, but these models stay in memory"),
    ],
)
def test_a_layout_that_is_impossible_is_refused_by_name(
    layout: str, offload: bool | None, message: str, tmp_path: Path
) -> None:
    trainer = Bulky(offloads=False)
    trainer.layout, trainer.offload = layout, offload
    with pytest.raises(RefusedError, match=message):
        run(study(tmp_path, trainer))
    assert layouts(tmp_path) == []


def test_a_divided_layout_needs_two_workers(tmp_path: Path) -> None:
    trainer = Bulky(shards=2)
    trainer.layout = "sharded"
    with pytest.raises(RefusedError, match="layout: 'sharded' divides a model .* at least workers=2"):
        run(study(tmp_path, trainer), workers=1)


def test_a_divided_layout_needs_strict_order(tmp_path: Path) -> None:
    trainer = Bulky(shards=2)
    trainer.layout = "sharded"
    free = study(tmp_path, trainer, order="free")
    with pytest.raises(RefusedError, match="in free order one worker trains each unit; expected order='strict'"):
        run(free, workers=2)


def _fingerprints(study: ht.Study) -> tuple[str, str]:
    from hoptree.driver.study_group import StudyGroup
    from hoptree.record.spec import StudySpec

    spec = StudySpec.together(StudyGroup([study]).specs)
    return spec.trainer, spec.data
