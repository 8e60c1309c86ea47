"""The memory of a worker is limited by the operating system; a unit above it fails as the user's error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn
from torch.nn.functional import cross_entropy

import hoptree as ht
from hoptree.core.errors import RefusedError, WorkloadError
from hoptree.driver.options import RunOptions
from hoptree.store.errors import StoreError
from hoptree.worker.limits import is_out_of_memory

LARGE = 64 * 2**30  # bytes, above the limits of these tests


def net(hp: Any) -> nn.Module:
    return nn.Linear(4, 2)


def greedy(x: Any, y: Any, hp: Any) -> tuple[Any, Any]:
    """Take more memory than the limit, if the trial asks for it and is beyond the rehearsal."""
    if hp["kind"] == "numpy" and len(x) > 8:
        np.empty(LARGE, dtype=np.uint8)
    if hp["kind"] == "torch" and len(x) > 8:
        x.new_empty(LARGE // 4)
    return x, y


def study(folder: Path) -> ht.Study:
    x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    data = ht.Dataset.from_arrays(x=x, y=(x[:, 0] > 0).astype(np.int64), partitions=2, valid=0.25, to=folder / "d")
    return ht.Study(
        "limits",
        trainer=ht.Torch(net, loss=cross_entropy, optimizer="sgd", transform=greedy),
        data=data,
        space={"lr": 0.1, "kind": ht.choice("none", "numpy", "torch"), "batch_size": 16},
        search=ht.Grid(epochs=1),
        minimize="loss",
        store=folder / "store",
    )


def test_a_trial_above_the_limit_fails_and_says_the_limit(tmp_path: Path) -> None:
    results = study(tmp_path).run(workers=1, quiet=True, memory_per_worker="8 GB")
    found = {trial.config["kind"]: trial for trial in results.trials}
    assert found["none"].state == "complete"
    for kind in ("numpy", "torch"):
        assert found[kind].state == "failed"
        assert "out of memory: a worker may use 8.00 GB; give run() a larger memory" in found[kind].error
        assert "in greedy" in found[kind].error


def test_a_limit_below_what_a_worker_needs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"memory_per_worker: 1 MB, but a worker takes .* before it trains"):
        study(tmp_path).run(workers=1, quiet=True, memory_per_worker=1_000_000)


@pytest.mark.parametrize("size", ["much", "-1 GB", True, "2 XB"])
def test_a_size_that_is_none_is_refused(size: Any) -> None:
    with pytest.raises(StoreError, match="memory_per_worker: "):
        RunOptions(memory_per_worker=size)


def test_no_memory_at_all_is_refused() -> None:
    with pytest.raises(WorkloadError, match="memory_per_worker: 0; expected a size above 0"):
        RunOptions(memory_per_worker=0)
    assert RunOptions().memory_bytes == 0
    assert RunOptions(memory_per_worker="2 GB").memory_bytes == RunOptions(memory_per_worker=2e9).memory_bytes


def test_memory_is_given_once_for_ray() -> None:
    pytest.importorskip("ray")
    backend = ht.Ray(resources_per_worker={"memory": 1e9})
    with pytest.raises(WorkloadError, match="memory_per_worker: 2000000000 bytes, but .* give it only once"):
        RunOptions(backend=backend, memory_per_worker="2 GB")


def test_other_errors_are_not_taken_for_it() -> None:
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"))
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
