"""GPUs for local workers, with a stand-in for the GPUs of the machine: no test has a real one."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from hoptree.backends import devices
from hoptree.backends.choice import make_pool, worker_count
from hoptree.backends.local import LocalPool
from hoptree.backends.processes import ProcessOptions
from hoptree.backends.ray_cluster import RayNode
from hoptree.backends.ray_resources import WorkerResources
from hoptree.backends.ray_settings import Ray
from hoptree.backends.worker_handle import WorkerHandle
from hoptree.testing.training import make_job
from hoptree.worker.messages import WorkerReady
from tests.system.plain import Plain


class Reporting(Plain):
    """Reports the GPU that its worker sees as a part of the platform."""

    device = "auto"

    def platform(self) -> dict[str, str]:
        import os

        return {"gpu": os.environ.get("CUDA_VISIBLE_DEVICES", "not set")}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("2,3", ["2", "3"]),
        (" 1 , GPU-8932f937, MIG-1", ["1", "GPU-8932f937", "MIG-1"]),
        ("0,-1,1", ["0"]),
    ],
)
def test_the_variable_of_cuda_says_which_gpus_there_are(
    value: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert devices.visible_gpus() == expected


def test_gpus_are_counted_by_the_driver_and_else_by_its_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "_DRIVER", tmp_path / "gpus")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert devices.visible_gpus() == []
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU 0: A (UUID: GPU-1)'\necho '  MIG 1g'\necho 'GPU 1: A (UUID: GPU-2)'\n")
    tool.chmod(0o755)
    assert devices.visible_gpus() == ["0", "1"]
    for name in ("0000:01", "0000:02", "0000:03"):
        (tmp_path / "gpus" / name).mkdir(parents=True)
    assert devices.visible_gpus() == ["0", "1", "2"]


@pytest.mark.parametrize(("device", "expected"), [("auto", 3), ("cuda", 3), ("cpu", 8), ("", 8)])
def test_one_worker_per_gpu_if_the_trainer_uses_them(
    device: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "visible_gpus", lambda: ["0", "1", "2"])
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    trainer = Plain()
    trainer.device = device
    assert worker_count(None, trainer) == expected
    assert worker_count(5, trainer) == 5


def ready(pool: LocalPool, workers: dict[str, WorkerHandle]) -> dict[str, str]:
    """Return the GPU that each worker has, once all are ready."""
    found: dict[str, str] = {}
    while len(found) < len(workers):
        for worker, message in pool.messages(wait(pool.sources())):
            assert isinstance(message, WorkerReady), message
            found[worker.name] = message.platform["gpu"]
    return found


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int, list[str]], LocalPool]:
    def start(device: str, workers: int, gpus: list[str]) -> LocalPool:
        monkeypatch.setattr(devices, "visible_gpus", lambda: gpus)
        job = make_job(tmp_path, workers=1)
        trainer = Reporting()
        trainer.device = device
        pool = make_pool("local", workers, trainer, job.dataset, job.states, tmp_path, "s", 1)
        assert isinstance(pool, LocalPool)
        return pool

    return start


def test_workers_share_gpus_and_a_replacement_has_that_of_the_lost_one(
    start: Callable[[str, int, list[str]], LocalPool],
) -> None:
    pool = start("auto", 3, ["4", "GPU-7"])
    workers = {worker.name: worker for worker in pool.recruit({}, 9)}
    try:
        found = ready(pool, workers)
        assert sorted(found.values()) == ["4", "4", "GPU-7"]
        lost = next(name for name, gpu in found.items() if gpu == "GPU-7")
        workers.pop(lost).kill()
        (new,) = pool.recruit(workers, 9)
        workers[new.name] = new
        assert ready(pool, {new.name: new}) == {new.name: "GPU-7"}
    finally:
        pool.close(list(workers.values()), at_once=True, failed=False)


def test_a_trainer_for_the_cpu_leaves_the_variable_alone(
    start: Callable[[str, int, list[str]], LocalPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,7")
    pool = start("cpu", 1, ["6", "7"])
    workers = {worker.name: worker for worker in pool.recruit({}, 9)}
    try:
        assert list(ready(pool, workers).values()) == ["6,7"]
    finally:
        pool.close(list(workers.values()), at_once=True, failed=False)


def test_seats_without_gpus_have_none() -> None:
    assert ProcessOptions().gpu(3) == ""


@pytest.mark.parametrize(
    ("device", "gpus", "expected"),
    [
        ("cpu", 2.0, {"CPU": 1.0}),
        ("auto", 2.0, {"GPU": 1.0, "CPU": 1.0}),
        ("", 2.0, {"GPU": 1.0, "CPU": 1.0}),
        ("auto", 0.0, {"CPU": 1.0}),
        ("cuda", 0.0, {"GPU": 1.0, "CPU": 1.0}),
    ],
)
def test_a_ray_worker_takes_a_gpu_if_its_trainer_may_use_it(
    device: str, gpus: float, expected: dict[str, float]
) -> None:
    trainer = Plain()
    trainer.device = device
    node = RayNode("a", "10.0.0.1", {"CPU": 4.0, "GPU": gpus, "memory": 1e10})
    assert WorkerResources(Ray(), trainer, [node]).amounts == expected
    limited = WorkerResources(Ray(), trainer, [node], 2 * 10**9)
    assert limited.amounts == {**expected, "memory": 2e9}
    assert limited.actor_options()["memory"] == 2e9
