"""Studies whose models are divided between workers, or offloaded: the bits are those of one worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.system import large_net
from tests.system.gang_nets import FLAG, layouts, study
from tests.system.processes import units_done_twice


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"layout": "sharded"}, ("sharded", 2)),
        ({"layout": "pipeline", "checkpoint": True}, ("pipeline+checkpoint", 2)),
        pytest.param({"layout": "pipeline", "offload": True}, ("pipeline+offload", 2), marks=pytest.mark.slow),
        pytest.param({"layout": "sharded", "offload": True}, ("sharded+offload", 2), marks=pytest.mark.slow),
        pytest.param({"layout": "single", "offload": True}, ("single+offload", 1), marks=pytest.mark.slow),
    ],
)
def test_a_layout_that_is_given(tmp_path: Path, options: Any, expected: tuple[str, int]) -> None:
    alone = study(tmp_path / "alone", "sequence", epochs=1, slow=False).run(workers=1)
    results = study(tmp_path / "given", "sequence", epochs=1, slow=False, **options).run(workers=2)
    assert [trial.state for trial in results.trials] == ["complete"]
    assert results.best.fingerprint == alone.best.fingerprint
    assert results.best.metrics == alone.best.metrics
    assert set(layouts(tmp_path / "given")) == {expected}


@pytest.mark.parametrize(
    ("layout", "who"),
    [
        ("sharded", "sequence that is killed in its helper"),
        pytest.param("pipeline", "sequence that is killed in its helper", marks=pytest.mark.slow),
        pytest.param("pipeline", "sequence that is killed in its leader", marks=pytest.mark.slow),
    ],
)
def test_a_worker_that_is_killed_costs_a_retry(
    tmp_path: Path, layout: str, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FLAG, str(tmp_path / "flag"))
    alone = study(tmp_path / "alone", who, epochs=1, slow=False).run(workers=1)
    assert not (tmp_path / "flag").exists()
    results = study(tmp_path / "killed", who, epochs=1, slow=False, layout=layout).run(workers=2)
    assert (tmp_path / "flag").exists()
    assert [trial.state for trial in results.trials] == ["complete"]
    assert results.best.fingerprint == alone.best.fingerprint
    assert not units_done_twice(tmp_path / "killed" / "store", "gangs")


LIMIT = 480  # MB; a worker takes about 270 MB before it trains


@pytest.mark.parametrize(
    ("layers", "width", "workers", "options", "layout"),
    [
        (50, 1024, 1, {}, ("single+offload", 1)),
        pytest.param(45, 1024, 2, {"layout": "pipeline"}, ("pipeline", 2), marks=pytest.mark.slow),
        pytest.param(120, 2048, 1, {"optimizer": "adam"}, ("single+offload", 1), marks=pytest.mark.slow),
    ],
    ids=["offloaded", "a pipeline", "four times as large"],
)
def test_a_model_that_is_larger_than_the_memory_of_a_worker(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    layers: int,
    width: int,
    workers: int,
    options: Any,
    layout: tuple[str, int],
) -> None:
    """50 layers of 4 MB have 200 MB of parameters, and two gradients of that; 120 layers of 16 MB have 1.9 GB."""
    (tmp_path / "peak").mkdir()
    monkeypatch.setenv(large_net.PEAK, str(tmp_path / "peak"))
    study = large_net.study(tmp_path, layers, width=width, **options)
    results = study.run(workers=workers, memory_per_worker=f"{LIMIT} MB")
    assert [trial.state for trial in results.trials] == ["complete"]
    assert set(layouts(tmp_path, "large")) == {layout}
    assert large_net.peak(tmp_path / "peak") < LIMIT * 10**6
