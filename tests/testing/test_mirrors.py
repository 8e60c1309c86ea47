"""Mirrors keep the contract, and the suite finds what breaks it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import optuna
import pytest

import hoptree as ht
from hoptree.mirror import Mirror, OptunaMirror, TrialSnapshot, WandB, WandbMirror
from hoptree.search import Goal
from hoptree.testing import MirrorCase, MirrorContract, MirroredTrial

GOAL = Goal("loss", maximize=False)
SPACE = {"lr": ht.log(1e-4, 1.0), "width": ht.choice(8, 16)}
OPTUNA = {"COMPLETE": "complete", "PRUNED": "stopped", "FAIL": "failed", "RUNNING": "running"}


class TestOptuna(MirrorContract):
    @pytest.fixture
    def mirror(self, tmp_path: Path) -> MirrorCase:
        url = f"sqlite:///{tmp_path / 'optuna.db'}"

        def read() -> dict[int, MirroredTrial]:
            storage = optuna.storages.RDBStorage(url)
            found = storage.get_all_trials(storage.get_study_id_from_name("mine"))
            storage.engine.dispose()
            return {t.number: MirroredTrial(OPTUNA[t.state.name], dict(t.intermediate_values)) for t in found}

        return MirrorCase(lambda: OptunaMirror(url, "mine", "one", SPACE, GOAL), read)


class TestWandb(MirrorContract):
    @pytest.fixture
    def mirror(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MirrorCase]:
        monkeypatch.setenv("WANDB_MODE", "offline")
        monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
        where = WandB(project="suite", folder=tmp_path)
        yield MirrorCase(lambda: WandbMirror(where, "mine", "one"), lambda: read_runs(tmp_path))
        sys.modules["wandb"].teardown()


def read_runs(folder: Path) -> dict[int, MirroredTrial]:
    """Return what the files of offline runs have, oldest first: one run may go on in another file."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    sys.modules["wandb"].teardown()  # until then its service may hold back what is not written yet
    files = (folder / "wandb").glob("offline-run-*/run-*.wandb")
    found: dict[int, MirroredTrial] = {}
    for file in sorted(files):  # folders have the time in their names
        store = DataStore()
        store.open_for_scan(str(file))
        number, state, losses = -1, "", {}
        while (data := store.scan_data()) is not None:
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            match record.WhichOneof("record_type"):
                case "run":
                    number = int(record.run.display_name.rpartition("-")[2])
                case "history":
                    row = {(i.key or i.nested_key[0]): json.loads(i.value_json) for i in record.history.item}
                    losses[row["_step"]] = row["loss"]
                case "summary":
                    items = {(i.key or i.nested_key[0]): i.value_json for i in record.summary.update}
                    state = json.loads(items.get("state", json.dumps(state)))
        store._fp.close()
        before = found.get(number, MirroredTrial("", {}))
        found[number] = MirroredTrial(state, {**before.losses, **losses})
    return found


class Faulty:
    """A mirror in a dictionary, with a fault in it."""

    def __init__(self, there: dict[int, Any], fault: str) -> None:
        self.there = there
        self.fault = fault

    def show(self, trials: Sequence[TrialSnapshot]) -> None:
        if self.fault == "only the last":
            self.there.clear()
        for trial in trials:
            losses = {epoch: metrics["loss"] for epoch, metrics in trial.curve.items()}
            before = self.there.get(trial.number)
            if self.fault == "no going on" and before is not None and before.state == "complete":
                continue
            if self.fault == "counts steps" and losses:
                losses = dict(enumerate(losses.values(), start=1))
            if self.fault == "numbers only":
                int(sum(losses.values()))
            if self.fault == "adds again" and before == (trial.state, losses):
                self.there[trial.number + 10] = before
            self.there[trial.number] = MirroredTrial(trial.state, losses)

    def close(self) -> None:
        if self.fault == "closes once" and not self.there:
            raise ValueError("nothing was shown")


def case(fault: str) -> MirrorCase:
    there: dict[int, MirroredTrial] = {}

    def opened() -> Mirror:
        return Faulty(there, fault)

    return MirrorCase(opened, lambda: there)


class TestSound(MirrorContract):
    @pytest.fixture
    def mirror(self) -> MirrorCase:
        return case("none")


@pytest.mark.parametrize(
    ("fault", "test"),
    [
        ("only the last", "nothing_new_is_nothing_to_do"),
        ("no going on", "a_trial_that_had_ended_goes_on"),
        ("counts steps", "it_bears_any_numbers_and_texts"),
        ("numbers only", "it_bears_any_numbers_and_texts"),
        ("adds again", "what_is_shown_again_changes_nothing"),
        ("closes once", "a_mirror_that_showed_nothing_closes"),
    ],
)
def test_seeded_faults_are_found(fault: str, test: str) -> None:
    with pytest.raises((AssertionError, ValueError)):
        getattr(MirrorContract(), f"test_{test}")(case(fault))
