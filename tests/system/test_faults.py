"""An error in the user's code ends its trial only; an error elsewhere costs a retry."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hoptree as ht
from hoptree.backends.local import slot_folders_of_study
from hoptree.record.record import Record
from hoptree.record.spec import StudySpec
from hoptree.store import FolderStates, Store
from tests.system.plain import Plain, dataset, study
from tests.system.processes import alive
from tests.system.sabotage import Sabotage


@pytest.mark.parametrize(
    ("act", "reasons"),
    [
        ("raise", ["ValueError: lone \\ud800 surrogate", "in misbehave"]),
        ("segfault", ["the worker died with SIGSEGV"]),
        ("exit", ["the worker died with exit code 3"]),
        ("leave", ["SystemExit: 4", "in misbehave", "exit() was called; raise an exception that says why"]),
        ("memory", ["out of memory", "in misbehave"]),
        ("words", ["metric 'loss': it returned low; expected one number"]),
    ],
)
def test_user_code_that_fails_ends_its_trial_only(tmp_path: Path, act: str, reasons: list[str]) -> None:
    results = study(tmp_path, "fine", act, "also fine").run(workers=2)
    assert [trial.state for trial in results.trials] == ["complete", "failed", "complete"]
    for reason in reasons:
        assert reason in results.trials[1].error
    assert "hoptree/worker" not in results.trials[1].error
    assert "hoptree/trainers" not in results.trials[1].error


@pytest.mark.slow
def test_if_all_trials_fail_the_error_says_why_there_is_no_best(tmp_path: Path) -> None:
    with pytest.raises(ht.RefusedError, match="No config could be trained. First error:\n") as refused:
        study(tmp_path, "leave").run(workers=1)
    assert str(refused.value).endswith("SystemExit: 4")  # reported once: there is only this config
    results = study(tmp_path, "segfault").run(workers=1)
    with pytest.raises(ht.HoptreeError, match="1 of 1 failed, such as trial 0: the worker died with SIGSEGV"):
        results.best  # noqa: B018


@pytest.mark.slow
def test_a_unit_that_hangs_is_ended_and_says_where_it_was(tmp_path: Path) -> None:
    results = study(tmp_path, "fine", "hang").run(workers=1, unit_limit=3.0)
    assert [trial.state for trial in results.trials] == ["complete", "failed"]
    assert "more than 3 s" in results.trials[1].error
    assert "in spin_for_ever" in results.trials[1].error


def test_a_metric_that_is_nan_comes_last(tmp_path: Path) -> None:
    results = study(tmp_path, "nan", "fine").run(workers=1)
    assert [trial.state for trial in results.trials] == ["complete", "complete"]
    assert results.best.number == 1


def test_a_worker_that_is_killed_costs_a_retry(tmp_path: Path) -> None:
    hurt = study(tmp_path, "once").run(workers=2)
    assert (tmp_path / "flag").exists()
    assert hurt.trials[0].state == "complete"
    assert study(tmp_path, "once").verify()[0].holds


def test_a_training_loss_that_is_not_finite_fails_its_trial(tmp_path: Path) -> None:
    from torch import nn

    trainer = ht.Torch(
        lambda hp: nn.Linear(4, 4), loss=nn.functional.mse_loss, optimizer="sgd", inputs=["x"], target="x"
    )
    space = {"lr": ht.choice(0.01, 1e30)}
    results = study(tmp_path, trainer=trainer, space=space, epochs=3).run(workers=1)
    assert [trial.state for trial in results.trials] == ["complete", "failed"]
    assert "loss" in results.trials[1].error


def final_states(folder: Path) -> list[Path]:
    """Return the files of what trials ended with; on a slow machine the store may hold more than these."""
    with Store(folder / "store", create=False) as store:
        known = store.catalog.find("plain")
        assert known is not None
        record = Record(StudySpec.read(known.spec).settings)
        list(record.replay(store.journal.read("plain")))
        places = [record.place(trial) for trial in record.trials]
        assert isinstance(store.states, FolderStates)
        return [store.states.path(place.node.state_key(place.unit)) for place in places if place is not None]


def test_a_damaged_state_is_trained_again_when_it_is_requested(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = study(tmp_path, "a", "b").run(workers=1)
    prints = [trial.fingerprint for trial in before.trials]
    damaged, missing = final_states(tmp_path)
    damaged.write_bytes(damaged.read_bytes()[:-8] + b"\0" * 8)
    missing.unlink()
    with caplog.at_level(logging.WARNING, logger="hoptree"):
        after = study(tmp_path, "a", "b").results()
        assert [trial.fingerprint for trial in after.trials] == prints
    assert "is trained again" in caplog.text
    assert after.savings.epochs_trained == 0


def test_files_of_a_dataset_that_were_changed_are_refused(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    target = data.path / data.manifest.train[0].name
    content = bytearray(target.read_bytes())
    content[-100] ^= 1
    target.chmod(0o600)
    target.write_bytes(content)
    with pytest.raises(ht.HoptreeError, match="was changed"):
        study(tmp_path, data=data).run(workers=1)
    with Store(tmp_path / "store", create=False) as store:
        assert not store.catalog.all()


def nothing_was_begun(folder: Path) -> bool:
    with Store(folder / "store", create=False) as store:
        return store.journal.last("plain") == 0


class Short(Plain):
    fingerprint = "short"

    def train(self, model: Any, data: Any, unit: Any) -> None:
        raise ValueError("shapes (4,) and (5,) do not fit")


def test_a_study_without_a_trainable_config_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(
        ht.HoptreeError, match=r"No config could be trained(.|\n)*shapes \(4,\) and \(5,\) do not fit"
    ):
        study(tmp_path, "a", "b", trainer=Short()).run(workers=2)
    assert nothing_was_begun(tmp_path)
    mended = study(tmp_path, "a", "b").run(workers=2)  # under the same name
    assert [trial.state for trial in mended.trials] == ["complete", "complete"]


def test_a_goal_that_is_not_reported_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ht.HoptreeError, match="'accuracy' is to be optimized, but the trainer reports only loss"):
        ht.Study(
            "plain", trainer=Plain(), data=dataset(tmp_path), space={"lr": 0.1}, search=ht.Grid(epochs=1),
            maximize="accuracy", store=tmp_path / "store",
        ).run(workers=1)  # fmt: skip
    assert nothing_was_begun(tmp_path)


def test_a_study_without_validation_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ht.HoptreeError, match=r"no validation data to compute 'loss' on; .* valid=0.2"):
        study(tmp_path, data=dataset(tmp_path, valid=0.0)).run(workers=1)


class Locked(Plain):
    fingerprint = "locked"

    def __init__(self) -> None:
        import threading

        super().__init__()
        self.lock = threading.Lock()


def test_a_trainer_that_cannot_be_sent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ht.HoptreeError, match=r"cannot be sent to a worker \(TypeError: .*lock"):
        study(tmp_path, trainer=Locked()).run(workers=1)
    assert nothing_was_begun(tmp_path)


def test_a_model_that_crashes_its_worker_in_rehearsal_fails_trial_by_trial(tmp_path: Path) -> None:
    results = study(tmp_path, "exit").run(workers=1)
    assert [trial.state for trial in results.trials] == ["failed"]


def test_changed_code_is_refused_unless_the_user_accepts_it(tmp_path: Path) -> None:
    class Other(Plain):
        fingerprint = "other"

    before = study(tmp_path).run(workers=1)
    with pytest.raises(ht.StudyChangedError, match="trainer changed"):
        study(tmp_path, trainer=Other()).run(workers=1)
    after = study(tmp_path, trainer=Other()).run(workers=1, accept_changes=True)
    assert after.savings.epochs_trained == 0
    assert after.trials[0].fingerprint == before.trials[0].fingerprint
    changed = (
        r"started \(search: was Grid\(epochs=2, every=\d\), is Grid\(epochs=1, every=\d\)\), and does not extend it"
    )
    with pytest.raises(ht.StudyChangedError, match=f"differs from the one that was {changed}"):
        study(tmp_path, epochs=1).run(workers=1, accept_changes=True)


def test_one_driver_at_a_time(tmp_path: Path) -> None:
    held = pytest.raises(ht.HoptreeError, match=r"plain: held by process \d+ on .* \(this process\)")
    with Store(tmp_path / "store") as store, store.lease("plain"), held:
        study(tmp_path).run(workers=1)


def test_a_unit_that_is_no_longer_needed_is_cancelled(tmp_path: Path) -> None:
    """A trial that fails in the middle of another's ahead-of-time work must not stall it."""
    results = study(tmp_path, "fine", "raise", nap=0.05).run(workers=2)
    assert [trial.state for trial in results.trials] == ["complete", "failed"]


def digits_like(folder: Path, **options: Any) -> ht.Study:
    """A torch study whose mistakes are the user's own."""
    from torch import nn

    settings: dict[str, Any] = {"space": {"lr": 0.1, "width": 8}, "trainer": None}
    settings.update(options)
    if settings["trainer"] is None:
        settings["trainer"] = ht.Torch(
            lambda hp: nn.Linear(hp["width"], 3), loss=nn.functional.cross_entropy, optimizer="sgd"
        )
    rows = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    data = ht.Dataset.from_arrays(x=rows, y=np.arange(64) % 3, partitions=2, valid=0.25, to=folder / "torch-data")
    return study(folder, data=data, **settings)


@pytest.mark.slow
def test_shapes_that_do_not_fit_are_refused_with_the_shapes(tmp_path: Path) -> None:
    with pytest.raises(ht.RefusedError, match=r"No config could be trained(.|\n)*(24x4 and 8x3)"):
        digits_like(tmp_path).run(workers=1)
    assert nothing_was_begun(tmp_path)


def test_a_value_that_the_space_lacks_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ht.RefusedError, match="width"):
        digits_like(tmp_path, space={"lr": 0.1}).run(workers=1)
    assert nothing_was_begun(tmp_path)


def test_an_unknown_optimizer_is_refused_by_name() -> None:
    from torch import nn

    with pytest.raises(ht.HoptreeError, match="optimizer: 'adamant'"):
        ht.Torch(lambda hp: nn.Linear(4, 3), loss=nn.functional.cross_entropy, optimizer="adamant")


def test_user_code_that_forks_and_continues_in_both_processes_trains_once(tmp_path: Path) -> None:
    results = study(tmp_path, "fork", "fine").run(workers=2)
    assert [trial.state for trial in results.trials] == ["complete", "complete"]
    assert results.savings.epochs_trained == 4


def started(folder: Path) -> list[int]:
    """Return the processes that the user's code has started."""
    return [int(line) for line in (folder / "flag").read_text().split()]


def test_processes_of_user_code_end_with_the_study(tmp_path: Path) -> None:
    results = study(tmp_path, "children").run(workers=1)
    assert [trial.state for trial in results.trials] == ["complete"]
    assert len(started(tmp_path)) == 12  # eight times in rehearsal, and in every unit
    assert alive(started(tmp_path)) == []


def test_an_error_of_60_mb_is_cut_before_it_is_stored(tmp_path: Path) -> None:
    results = study(tmp_path, "fine", "long").run(workers=1)
    assert [trial.state for trial in results.trials] == ["complete", "failed"]
    assert len(results.trials[1].error) < 21_000


@pytest.mark.parametrize("act", ["limit", "hard limit"])
@pytest.mark.slow
def test_a_limit_on_file_sizes_fails_its_trial_only(tmp_path: Path, act: str) -> None:
    large = Plain(1 << 16)  # every state of another size class than what a worker has room for already
    results = study(tmp_path, act, "fine", "also fine", trainer=large).run(workers=1)
    assert [trial.state for trial in results.trials] == ["failed", "complete", "complete"]
    assert "RLIMIT_FSIZE" in results.trials[0].error


def test_removed_slots_are_lost_states(tmp_path: Path) -> None:
    def remove() -> None:
        for folder in slot_folders_of_study(tmp_path / "hurt" / "store", "plain"):
            shutil.rmtree(folder, ignore_errors=True)

    space = {"lr": ht.choice(0.1, 0.2, ht.multistep(0.1, at=[2], gamma=0.5)), "nap": 0.01}
    hurt = Sabotage(ht.Grid(epochs=4), {3: remove, 6: remove})
    results = study(tmp_path / "hurt", search=hurt, space=space).run(workers=2)
    usual = study(tmp_path / "usual", search=ht.Grid(epochs=4), space=space).run(workers=1)
    assert [trial.state for trial in results.trials] == ["complete"] * 3
    assert [trial.fingerprint for trial in results.trials] == [trial.fingerprint for trial in usual.trials]
