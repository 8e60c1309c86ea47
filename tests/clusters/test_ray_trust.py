"""What makes a name trusted, on a real cluster: platforms, data, the probe and the hop test."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import hoptree as ht
from hoptree.backends import platform_gate
from hoptree.core.errors import RefusedError, StudyChangedError
from hoptree.data import DataChangedError
from hoptree.data.manifest import NAME
from hoptree.store import Store
from hoptree.worker.partition_cache import cache_folder
from tests.clusters.conftest import Nodes
from tests.clusters.test_ray import joined, prints
from tests.clusters.trusting import ByClock, ByKernels, BySize, mean_square, with_backbone, with_unseeded_backbone
from tests.data.test_changes import edit
from tests.system.plain import dataset, study

OTHER = {"HOPTREE_TEST_KERNELS": "other"}


def two_trials(folder: Path, data: ht.Dataset, epochs: int = 2, **options: Any) -> ht.Study:
    folder.mkdir(exist_ok=True)
    space = {"lr": ht.choice(0.1, 0.2)}
    return study(folder, **{"data": data, "space": space, "search": ht.Grid(epochs=epochs), **options})


def platforms(folder: Path) -> list[dict[str, str]]:
    """Return the platforms of the variants in a store."""
    with Store(folder / "store", create=False) as store:
        known = store.catalog.find("plain")
        assert known is not None
        return [origin.platform for origin in store.origins.find(known.spec["root"])]


# --- platforms --------------------------------------------------------------------------------------------


def test_one_kind_of_nodes_trains_all_partitions(
    tmp_path: Path, nodes: Nodes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partitions that the nodes of other kinds were to hold go to those that train."""
    monkeypatch.setattr(platform_gate, "_WAIT", 600.0)  # the majority counts only after all have reported
    data = dataset(tmp_path, partitions=6)
    expected = prints(two_trials(tmp_path / "local", data, trainer=ByKernels()).run(workers=1))
    nodes.add(2)
    nodes.add(1, **OTHER)
    nodes.wait_for(4)
    job = two_trials(tmp_path / "s", data, trainer=ByKernels())
    assert prints(job.run(backend=nodes.where(), same_platform=True)) == expected
    assert "2 of 3 workers have one platform, the others differ (kernels was usual, is other)" in caplog.text
    left_out = nodes.here[-1].node_id[:6]
    assert not [event for event in joined(tmp_path / "s") if left_out in event.worker]
    assert [platform["kernels"] for platform in platforms(tmp_path / "s")] == ["usual"]


@pytest.mark.slow
def test_states_of_several_platforms_are_apart_from_those_of_one(
    tmp_path: Path, nodes: Nodes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform_gate, "_WAIT", 600.0)
    data = dataset(tmp_path, partitions=4)
    one = {"trainer": ByKernels(), "data": data, "folder": tmp_path / "s"}
    nodes.add(1)
    nodes.add(1, **OTHER)
    nodes.wait_for(3)
    mixed = two_trials(**one).run(backend=nodes.where())
    assert "1 of 2 workers have one platform" in caplog.text
    assert "same_platform=True" in caplog.text
    assert [list(platform) for platform in platforms(tmp_path / "s")] == [["mixture"]]
    usual = two_trials(**one, name="usual").run(workers=1)
    assert usual.savings.epochs_reused == 0
    assert set(prints(usual)).isdisjoint(prints(mixed))
    again = two_trials(**one, name="again").run(backend=nodes.where(), same_platform=True)
    if again.savings.epochs_reused:  # either kind may be chosen, as there is one worker of each
        assert prints(again) == prints(usual)
    else:
        assert set(prints(again)).isdisjoint([*prints(usual), *prints(mixed)])
    with pytest.raises(StudyChangedError, match="platform was workers on different platforms, is workers on one"):
        two_trials(**one, epochs=3).run(backend=nodes.where(), same_platform=True)


@pytest.mark.slow
def test_a_study_goes_on_with_the_platform_that_it_began_with_though_others_are_more(
    tmp_path: Path, nodes: Nodes
) -> None:
    data = dataset(tmp_path, partitions=4)
    expected = prints(two_trials(tmp_path / "local", data, 3, trainer=ByKernels()).run(workers=1))
    nodes.add(1)
    two_trials(tmp_path / "s", data, trainer=ByKernels()).run(backend=nodes.where(), same_platform=True)
    nodes.add(2, **OTHER)
    nodes.wait_for(4)
    longer = two_trials(tmp_path / "s", data, 3, trainer=ByKernels())
    assert prints(longer.run(backend=nodes.where(), same_platform=True)) == expected


# --- data -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copy", [False, True])
def test_a_partition_that_was_edited_between_two_runs_is_refused(tmp_path: Path, nodes: Nodes, copy: bool) -> None:
    data = dataset(tmp_path, partitions=4)
    nodes.add(2)
    nodes.wait_for(3)
    before = two_trials(tmp_path / "s", data).run(backend=nodes.where(copy=copy))
    edit(data.path / "train-00003.arrow")
    longer = two_trials(tmp_path / "s", ht.Dataset.open(data.path), 3)
    with pytest.raises(DataChangedError, match=r"train-00003\.arrow: was changed: .* of partition 3;"):
        longer.run(backend=nodes.where(copy=copy))
    (data.path / NAME).touch()  # as if it had been built after the edit: only those who read it can tell
    with pytest.raises(RefusedError, match=r"train-00003\.arrow: was changed: .* of partition 3;"):
        longer.run(backend=nodes.where(copy=copy))
    assert prints(before)  # complete, as they were
    assert {trial.epochs for trial in longer.results().trials} == {2}


def test_a_node_whose_own_copy_differs_copies_it_again(tmp_path: Path, nodes: Nodes) -> None:
    data = dataset(tmp_path, partitions=4)
    expected = prints(two_trials(tmp_path / "local", data).run(workers=1))
    nodes.add(2)
    nodes.wait_for(3)
    own = cache_folder(data.fingerprint, nodes.here[0].node_id)
    own.mkdir(parents=True)
    for file in data.path.glob("*.arrow"):
        shutil.copyfile(file, own / file.name)
        edit(own / file.name)
    results = two_trials(tmp_path / "s", data).run(backend=nodes.where(copy=True))
    assert prints(results) == expected
    assert len({event.worker for event in joined(tmp_path / "s")}) == 2


# --- the probe and the hop test ---------------------------------------------------------------------------


@pytest.mark.slow
def test_states_are_not_reused_when_the_same_code_trains_other_bits(
    tmp_path: Path, nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    data = dataset(tmp_path, partitions=4)
    unseen = tmp_path / "unseen"
    unseen.write_bytes(b"1")
    one = {"trainer": BySize(unseen), "data": data, "folder": tmp_path / "s"}
    nodes.add(2)
    nodes.wait_for(3)
    first = two_trials(**one).run(backend=nodes.where())
    assert two_trials(**one, name="same").run(backend=nodes.where()).savings.epochs_trained == 0
    assert "trained other bits" not in caplog.text  # a busy machine may warn of slow workers
    unseen.write_bytes(b"123")
    other = two_trials(**one, name="other").run(backend=nodes.where())
    assert other.savings.epochs_reused == 0
    assert set(prints(other)).isdisjoint(prints(first))
    assert "other: the same code trained other bits than on" in caplog.text
    with pytest.raises(StudyChangedError, match="the same code trained other bits than on"):
        two_trials(**one, epochs=3).run(backend=nodes.where())  # its states are of the earlier bits


def test_code_that_reads_the_clock_is_refused_before_training(tmp_path: Path, nodes: Nodes) -> None:
    nodes.add(2)
    nodes.wait_for(3)
    job = two_trials(tmp_path / "s", dataset(tmp_path, partitions=4), trainer=ByClock())
    with pytest.raises(RefusedError, match=r"nothing was trained.*bits differ when a model is trained twice"):
        job.run(backend=nodes.where())
    with pytest.raises(ht.HoptreeError, match="has nothing of it"):
        job.results()


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (with_backbone, r"layer '0' is the same object in every model"),
        (with_unseeded_backbone, r"module tests\.clusters\.trusting .* random values when it is imported"),
    ],
)
def test_a_shared_backbone_is_named_before_training(tmp_path: Path, nodes: Nodes, net: Any, message: str) -> None:
    nodes.add(1)
    nodes.wait_for(2)
    trainer = ht.Torch(net, loss=mean_square, optimizer="sgd", inputs="x", target="x")
    job = two_trials(tmp_path / "s", dataset(tmp_path), trainer=trainer)
    with pytest.raises(RefusedError, match=message):
        job.run(backend=nodes.where())
    with pytest.raises(ht.HoptreeError, match="has nothing of it"):
        job.results()
