"""Studies train real models in real processes, give the same bits every time, and survive being killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import hoptree as ht
from hoptree.backends.local import slot_folders_of_study
from tests.system.processes import units_done_twice, workers_of

PROGRAM = Path(__file__).parents[1] / "system" / "digits_study.py"


def start(folder: Path, workers: int = 2, share: bool = True, verify: bool = False) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAM), str(workers), "share" if share else "alone", *["verify"] * verify]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return dict(json.loads(out))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return finish(start(tmp_path_factory.mktemp("reference"), workers=1))


def test_prefixes_are_shared_and_a_finished_study_trains_nothing(tmp_path: Path, reference: dict[str, Any]) -> None:
    first = finish(start(tmp_path, verify=True))
    assert first["states"] == ["complete"] * 4
    assert (first["asked"], first["trained"], first["shared"]) == (24, 16, 8)
    assert first["accuracy"] > 0.9
    assert first["verified"] == [True] * 4
    again = finish(start(tmp_path))
    assert again["trained"] == 0
    assert again["reused"] == 16
    assert again["fingerprints"] == first["fingerprints"] == reference["fingerprints"]


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "share"), [(3, True), (2, False)])
def test_bits_depend_on_neither_workers_nor_sharing(
    tmp_path: Path, reference: dict[str, Any], workers: int, share: bool
) -> None:
    result = finish(start(tmp_path, workers, share))
    assert result["fingerprints"] == reference["fingerprints"]
    assert result["trained"] == (16 if share else 24)


def kill_and_resume(folder: Path, random: Random, kills: int) -> dict[str, Any]:
    """Kill the driver or a worker with signal 9 at random moments, then let the study end."""
    for _ in range(kills):
        process = start(folder)
        try:
            process.communicate(timeout=random.uniform(1.5, 6.0))
        except subprocess.TimeoutExpired:
            victims = [process.pid, *workers_of(process.pid)]
            os.kill(random.choice(victims), signal.SIGKILL)
        if random.random() < 0.5 and process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.kill()
        process.communicate()
    return finish(start(folder))


@pytest.mark.slow
def test_killed_and_resumed_studies_give_the_same_bits(tmp_path: Path, reference: dict[str, Any]) -> None:
    result = kill_and_resume(tmp_path, Random(1), kills=2)
    assert result["fingerprints"] == reference["fingerprints"]
    assert result["states"] == ["complete"] * 4
    assert units_done_twice(tmp_path / ".hoptree", "digits") == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_fifty_kills(tmp_path: Path, reference: dict[str, Any], seed: int) -> None:
    result = kill_and_resume(tmp_path, Random(seed), kills=5)
    assert result["fingerprints"] == reference["fingerprints"]
    assert not any(folder.exists() for folder in slot_folders_of_study(tmp_path / ".hoptree", "digits"))
    assert units_done_twice(tmp_path / ".hoptree", "digits") == 0


def tiny_study(folder: Path, model: Any, name: str = "tiny", **options: Any) -> ht.Study:
    from torch import nn

    random = np.random.default_rng(0)
    data = ht.Dataset.from_arrays(
        x=random.normal(size=(64, 4)).astype(np.float32),
        y=random.integers(0, 3, 64),
        partitions=2,
        valid=0.25,
        to=folder / "data",
    )
    trainer = ht.Torch(model, loss=nn.functional.cross_entropy, optimizer="sgd")
    space = {"lr": 0.1, "width": ht.choice(8, 16)}
    settings: dict[str, Any] = {"space": space, "search": ht.Grid(epochs=2), "minimize": "loss", **options}
    return ht.Study(name, trainer=trainer, data=data, store=folder / "store", **settings)


@pytest.mark.slow
def test_names_that_nothing_reads_cause_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from torch import nn

    def net(hp: Any) -> nn.Module:
        return nn.Linear(4, 3 + 0 * hp.get("head.width", 0))

    def told(name: str, **space: Any) -> list[str]:
        caplog.clear()
        tiny_study(tmp_path, net, name, space=space, search=ht.Random(1, epochs=1)).run(workers=1, quiet=True)
        return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]

    (warning,) = told("misspelt", lr=0.1, learning_rate=ht.log(0.01, 0.1))
    assert warning.startswith("space: nothing reads 'learning_rate', and no option of the optimizer has that name")
    assert told("parts", lr=0.1, head=ht.choice({"width": 2}, {"width": 3})) == []


def test_a_model_that_raises_fails_its_trial_with_the_users_traceback(tmp_path: Path) -> None:
    from torch import nn

    def model(hp: Any) -> nn.Module:
        if hp["width"] == 16:
            raise ValueError("sixteen is too wide")
        return nn.Linear(4, 3)

    results = tiny_study(tmp_path, model).run(workers=1)
    assert [trial.state for trial in results.trials] == ["complete", "failed"]
    assert "sixteen is too wide" in results.trials[1].error
    assert "in model" in results.trials[1].error
    assert "hoptree/worker" not in results.trials[1].error
    assert results.best.number == 0


def test_a_model_that_kills_its_worker_fails_its_trial(tmp_path: Path) -> None:
    from torch import nn

    def model(hp: Any) -> nn.Module:
        if hp["width"] == 16:
            os.abort()
        return nn.Linear(4, 3)

    results = tiny_study(tmp_path, model).run(workers=2)
    assert [trial.state for trial in results.trials] == ["complete", "failed"]
    assert "SIGABRT" in results.trials[1].error


def test_changed_code_is_refused(tmp_path: Path) -> None:
    from torch import nn

    tiny_study(tmp_path, lambda hp: nn.Linear(4, 3)).run(workers=1)
    with pytest.raises(ht.HoptreeError, match="trainer changed"):
        tiny_study(tmp_path, lambda hp: nn.Sequential(nn.Linear(4, 3))).run(workers=1)


def test_the_trained_model_can_be_loaded(tmp_path: Path) -> None:
    import torch
    from torch import nn

    results = tiny_study(tmp_path, lambda hp: nn.Linear(4, 3)).run(workers=1)
    model = results.best.load()
    assert model(torch.zeros(1, 4)).shape == (1, 3)
    frame = results.to_frame()
    assert list(frame["state"]) == ["complete", "complete"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maximize": "accuracy"}, "exactly one"),
        ({"space": {}}, "space: it is empty"),
        ({"space": {"lr": [0.1, 0.2]}}, "use choice"),
        ({"order": "any"}, "order: 'any'"),
        ({"search": "grid"}, "search: 'grid'; expected a procedure"),
        ({"search": ht.Grid}, "search: <class .*Grid'>; expected a procedure"),
        ({"search": None}, "search: None; expected a procedure"),
        ({"search": []}, "search: none given"),
        ({"seed": "a"}, "seed: 'a'; expected a whole number"),
        ({"seed": 1.5}, "seed: 1.5; expected a whole number"),
        ({"seed": True}, "seed: True; expected a whole number"),
        ({"minimize": ["loss"]}, r"minimize: \['loss'\]; expected the name of a metric"),
        ({"minimize": ""}, "minimize: ''; expected the name of a metric"),
        ({"name": 3}, "name: 3; expected a non-empty name"),
        ({"seed": None}, "seed: None; expected a whole number"),
        ({"seed": 0.5}, "seed: 0.5; expected a whole number"),
        ({"share": "no"}, "share: 'no'; expected True or False"),
    ],
)
def test_bad_studies_are_refused_before_anything_runs(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    from torch import nn

    with pytest.raises(ht.HoptreeError, match=message):
        tiny_study(tmp_path, lambda hp: nn.Linear(4, 3), **options)


@pytest.mark.parametrize("limit", [0, "5", True, float("nan")])
def test_a_limit_that_is_no_time_is_refused_before_anything_runs(tmp_path: Path, limit: Any) -> None:
    with pytest.raises(ht.WorkloadError, match=f"unit_limit: {limit!r}; expected a number of seconds above 0"):
        tiny_study(tmp_path, lambda hp: None).run(workers=1, unit_limit=limit)
    assert not (tmp_path / "store").exists()
