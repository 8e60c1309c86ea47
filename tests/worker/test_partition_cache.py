"""The workers of a node share its partitions: each is copied once, and goes when nobody has it any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hoptree.worker.partition_cache import PartitionCache
from tests.system.plain import dataset


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., PartitionCache]]:
    data = dataset(tmp_path, partitions=3)
    (tmp_path / "disk").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "disk"))
    made: list[PartitionCache] = []

    def make(*partitions: int) -> PartitionCache:
        depot = PartitionCache(str(data.path), data.fingerprint, "node", copy=True)
        depot.hold(partitions)
        made.append(depot)
        return depot

    yield make
    for depot in made:
        depot.close()


def files(depot: PartitionCache) -> list[str]:
    return sorted(path.name for path in depot.folder.glob("train-*.arrow"))


def test_a_partition_stays_while_a_sibling_may_still_need_it(worker: Callable[..., PartitionCache]) -> None:
    first, second = worker(0, 1), worker(0, 1)
    first.hold([0])
    assert "x" in second.dataset().partition(1)  # never read before: a unit on it was in the queue
    second.hold([0])
    assert files(first) == ["train-00000.arrow"]
    first.hold([0, 2])
    second.hold([0, 2])
    assert files(first) == ["train-00000.arrow", "train-00002.arrow"]


def test_the_last_worker_removes_the_partition_cache(worker: Callable[..., PartitionCache]) -> None:
    first, second = worker(0), worker(0, 1)
    first.close()
    assert files(second) == ["train-00000.arrow", "train-00001.arrow"]
    second.close()
    assert not second.folder.exists()
