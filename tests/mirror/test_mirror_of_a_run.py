"""A real study in an Optuna storage, as optuna-dashboard tells it over HTTP, afterwards and while it runs."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.request import urlopen

import numpy as np
import optuna
import pytest
from sklearn.datasets import load_digits
from torch import nn

import hoptree as ht
from tests.system.plain import study as plain_study


def net(hp):
    return nn.Sequential(nn.Linear(64, hp["width"]), nn.ReLU(), nn.Linear(hp["width"], 10))


def digits_study(folder: Path, **settings: Any) -> ht.Study:
    digits = load_digits()
    x = (digits.data / 16).astype(np.float32)
    return ht.Study(
        "digits",
        trainer=ht.Torch(
            net, loss=nn.functional.cross_entropy, optimizer="adam", metrics={"accuracy": ht.accuracy}
        ),
        data=ht.Dataset.from_arrays(x=x, y=digits.target, partitions=2, valid=0.2, to=folder / "data"),
        space={
            "lr": ht.choice(3e-3, ht.multistep(3e-3, at=[1], gamma=0.1)),
            "weight_decay": ht.log(1e-6, 1e-2),
            "width": ht.integer(16, 64),
            "batch_size": 64,
        },
        search=ht.SuccessiveHalving(trials=4, max_epochs=4, factor=2),
        maximize="accuracy",
        store=folder / "store",
        **settings,
    )


@contextmanager
def dashboard(url: str) -> Iterator[str]:
    """Run optuna-dashboard on a free port, and give its address; it says there when it is ready."""
    program = (
        "import sys; from wsgiref.simple_server import make_server; from optuna_dashboard import wsgi\n"
        "server = make_server('127.0.0.1', 0, wsgi(sys.argv[1]))\n"
        "print(f'http://127.0.0.1:{server.server_port}', flush=True); server.serve_forever()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, url], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def told(address: str, path: str) -> Any:
    with urlopen(f"{address}/api/{path}", timeout=900) as answer:
        return json.load(answer)


def trials_there(url: str, name: str) -> list[optuna.trial.FrozenTrial]:
    storage = optuna.storages.RDBStorage(url)
    try:
        return storage.get_all_trials(storage.get_study_id_from_name(name))
    finally:
        storage.remove_session()
        storage.engine.dispose()


def agrees(url: str, results: ht.Results) -> None:
    """The dashboard tells the study's trials, parameters, values and curves."""
    with dashboard(url) as address:
        (summary,) = told(address, "studies")["study_summaries"]
        assert summary["study_name"] == "digits"
        detail = told(address, f"studies/{summary['study_id']}")
    assert detail["name"] == "digits"
    assert detail["directions"] == ["maximize"]
    assert detail["objective_names"] == ["accuracy"]
    assert detail["has_intermediate_values"]
    assert [trial["number"] for trial in detail["trials"]] == [trial.number for trial in results.trials]
    states = {"complete": "Complete", "stopped": "Pruned", "failed": "Fail"}
    for there, here in zip(detail["trials"], results.trials, strict=True):
        assert there["state"] == states[here.state]
        curve = {epoch: metrics["accuracy"] for epoch, metrics in here.curve.items()}
        assert {point["step"]: point["value"] for point in there["intermediate_values"]} == curve
        assert there["values"] == [here.metrics["accuracy"]]
        values = {parameter["name"]: parameter["param_external_value"] for parameter in there["params"]}
        assert values.keys() == {"lr", "weight_decay", "width"}
        assert float(values["weight_decay"]) == here.config["weight_decay"]
        assert int(values["width"]) == here.config["width"]
        assert values["lr"].strip("'\"") == str(here.config["lr"])
        attributes = {attribute["key"]: attribute["value"] for attribute in there["user_attrs"]}
        assert int(attributes["epochs"]) == here.epochs
    best = max(results.trials, key=lambda trial: (trial.state == "complete", trial.metrics["accuracy"]))
    assert results.best.metrics == best.metrics


@pytest.mark.slow
def test_the_dashboard_shows_a_mirrored_study(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'optuna.db'}"
    mine = digits_study(tmp_path)
    results = mine.run(workers=2)
    assert {trial.state for trial in results.trials} == {"complete", "stopped"}
    mine.mirror(url)
    agrees(url, results)
    best = results.best.number
    mine.extend(best, epochs=5)
    later = mine.run(workers=1)  # one trial goes on
    assert later.trials[best].epochs == 5
    mine.mirror(url)
    agrees(url, later)


def test_a_study_is_mirrored_while_it_runs(tmp_path: Path) -> None:
    """A trial is seen running, with a curve, before the study ends; a run that trains nothing mirrors, too."""
    url = f"sqlite:///{tmp_path / 'optuna.db'}"
    mine = plain_study(tmp_path, "a", "b", "raise", epochs=60, nap=0.05)
    mine.open_mirror(url).close()  # tables that two make at once are one too many
    seen: list[Any] = []
    ended = Event()

    def look() -> None:
        while not ended.wait(0.05):
            found = trials_there(url, "plain")
            if any(trial.state.name == "RUNNING" and len(trial.intermediate_values) > 1 for trial in found):
                seen.append(found)
                mine.stop(0)
                mine.stop(1)
                return

    looking = Thread(target=look)
    looking.start()
    try:
        results = mine.run(workers=2, mirror=url)
    finally:
        ended.set()
        looking.join()
    assert seen
    last = trials_there(url, "plain")
    assert [trial.state.name for trial in last] == ["PRUNED", "PRUNED", "FAIL"]
    for there, here in zip(last, results.trials, strict=True):
        assert there.intermediate_values == {epoch: metrics["loss"] for epoch, metrics in here.curve.items()}
    assert "lone" in last[2].user_attrs["error"]
    other = f"sqlite:///{tmp_path / 'other.db'}"
    assert mine.run(workers=1, mirror=other).savings.epochs_trained == 0
    assert [trial.intermediate_values for trial in trials_there(other, "plain")] == [
        trial.intermediate_values for trial in last
    ]


def test_studies_that_run_together_are_mirrored_each(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'optuna.db'}"
    a = plain_study(tmp_path, "x", "y", name="a")
    b = plain_study(tmp_path, "y", "z", name="b", data=a.data, epochs=3)
    ht.run([a, b], workers=2, mirror=url)
    assert [len(trial.intermediate_values) for trial in trials_there(url, "a")] == [2, 2]
    assert [len(trial.intermediate_values) for trial in trials_there(url, "b")] == [3, 3]
    assert [trial.params["act"] for trial in trials_there(url, "b")] == ["y", "z"]


def test_a_database_that_breaks_does_not_break_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    database = tmp_path / "optuna.db"
    mine = plain_study(tmp_path, "a", "b")
    mine.open_mirror(f"sqlite:///{database}").close()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON trial_params "
            "BEGIN SELECT RAISE(ABORT, 'the disk is on fire'); END"
        )
    results = mine.run(workers=1, mirror=f"sqlite:///{database}")
    assert [trial.state for trial in results.trials] == ["complete", "complete"]
    first, last = [record.message for record in caplog.records if record.name == "hoptree"]
    assert re.search("mirror of study 'plain': .* training continues", first, re.DOTALL)
    assert last == "mirror of study 'plain': not all of it was written; mirror it again"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("DROP TRIGGER refuse")
    mine.mirror(f"sqlite:///{database}")
    assert [len(trial.intermediate_values) for trial in trials_there(f"sqlite:///{database}", "plain")] == [2, 2]


def test_a_wrong_storage_is_refused_before_anything_runs(tmp_path: Path) -> None:
    mine = plain_study(tmp_path, "a")
    with pytest.raises(ht.WorkloadError, match="mirror: 'optuna'; expected the URL of a database"):
        mine.run(workers=1, mirror="optuna")
    with pytest.raises(ht.HoptreeError, match="has nothing of it"):
        mine.results()
    mine.run(workers=1, quiet=True)
    with pytest.raises(ht.WorkloadError, match="mirror: 'optuna'"):
        mine.run(workers=1, mirror="optuna")
    with mine.open_store() as store:
        known = store.catalog.find("plain")
    assert known is not None
    assert known.status == "finished"  # what was refused has changed nothing
