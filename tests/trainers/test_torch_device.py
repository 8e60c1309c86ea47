"""Devices are found in workers: a driver neither asks torch for a GPU nor needs one. No test here has a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import hoptree as ht
from hoptree.core.errors import RefusedError
from hoptree.store import StudyMissingError
from hoptree.trainers import Torch, TrainerError
from hoptree.trainers.torch_device import DeviceMissingError, find_device

needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


def net(hp: Any) -> nn.Module:
    return nn.Linear(4, 2)


def trainer(device: str) -> Torch:
    return Torch(net, loss=cross_entropy, optimizer="sgd", device=device)


def study(folder: Path, device: str) -> ht.Study:
    x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    data = ht.Dataset.from_arrays(x=x, y=(x[:, 0] > 0).astype(np.int64), partitions=2, valid=0.25, to=folder / "d")
    return ht.Study(
        "devices",
        trainer=trainer(device),
        data=data,
        space={"lr": ht.choice(0.1, 0.2)},
        search=ht.Grid(epochs=1),
        minimize="loss",
        store=folder / device,
    )


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("cuda:1", "device: 'cuda:1'; expected 'cuda': every worker sees one GPU.*CUDA_VISIBLE_DEVICES"),
        ("mps", "device: 'mps'; expected 'cpu', 'cuda' or 'auto'"),
        (None, "device: None; expected 'cpu', 'cuda' or 'auto'"),
    ],
)
def test_other_names_are_refused(device: Any, expected: str) -> None:
    with pytest.raises(TrainerError, match=expected):
        trainer(device)


def test_a_driver_never_asks_torch_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bool:
        raise AssertionError("asked for a GPU")

    for name in ("is_available", "device_count", "_lazy_init", "get_device_name"):
        monkeypatch.setattr(torch.cuda, name, refuse)
    found = [trainer(device) for device in ("cpu", "auto", "cuda")]
    cpu, auto, cuda = (each.fingerprint for each in found)
    assert cpu == auto != cuda  # the platform of a worker tells what "auto" has found
    assert [each.fingerprint_parts["device"] for each in found] == ["cpu", "auto", "cuda"]
    for each in found:
        cloudpickle.dumps(each)


def test_the_gpu_is_part_of_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = trainer("auto").platform()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _=None: "Stand-in 9000")
    assert {each: trainer(each).platform()["device"] for each in ("cpu", "auto", "cuda")} == {
        "cpu": "cpu",
        "auto": "Stand-in 9000",
        "cuda": "Stand-in 9000",
    }
    assert {**trainer("auto").platform(), "device": "cpu"} == before


def test_a_gpu_gets_the_setting_that_deterministic_products_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")  # so that it is restored afterwards
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    assert "CUBLAS_WORKSPACE_CONFIG" not in trainer("auto").platform()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _=None: "Stand-in 9000")
    assert find_device("auto") == torch.device("cuda")
    assert trainer("auto").platform()["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


@needs_no_gpu
def test_a_process_without_a_gpu_says_so() -> None:
    assert find_device("auto") == find_device("cpu") == torch.device("cpu")
    with pytest.raises(DeviceMissingError, match="device: 'cuda', but torch finds no GPU.*device='auto'"):
        find_device("cuda")


@needs_no_gpu
def test_a_worker_without_a_gpu_refuses_before_training(tmp_path: Path) -> None:
    job = study(tmp_path, "cuda")
    with pytest.raises(RefusedError, match="device: 'cuda', but torch finds no GPU"):
        job.run(workers=1, quiet=True)
    with pytest.raises(StudyMissingError):  # nothing was recorded, so nothing was trained
        job.results()


@needs_no_gpu
def test_auto_trains_the_bits_of_the_cpu_where_there_is_no_gpu(tmp_path: Path) -> None:
    auto, cpu = (study(tmp_path, device).run(workers=1, quiet=True) for device in ("auto", "cpu"))
    assert auto.best.fingerprint == cpu.best.fingerprint


def test_what_a_starter_imports_does_not_look_for_gpus() -> None:
    """Otherwise a fork could not choose its GPU any more."""
    code = """
import torch
def refuse(*_): raise SystemExit("asked for a GPU")
for name in ("is_available", "device_count", "_lazy_init"):
    setattr(torch.cuda, name, refuse)
import hoptree.trainers.torch_preload
assert not torch.cuda.is_initialized()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
