"""Workers train the driver's code: another version of a module raises an error with its name."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import hoptree as ht
from hoptree.store import Store
from tests.system.plain import dataset

NETS = """
from parts_of_nets import width
from tests.system.plain import Plain
from hoptree.identity.fingerprints import fingerprint as hash_of


class Named(Plain):
    @property
    def fingerprint(self):
        return hash_of((type(self).build, self.size))

    def build(self, values, seed):
        {first}
        self.size = width()
        return super().build(values, seed)
"""
EDIT = """
import os
import pathlib


def edit_and_die(values, seed):
    flag = pathlib.Path("edited")
    if seed and not flag.exists():  # in rehearsal there is no seed
        flag.touch()
        pathlib.Path("parts_of_nets.py").write_text("def width():\\n    return 4\\n")
        os.kill(os.getpid(), 9)
"""
PARTS = "def width():\n    return {width}\n"


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A user's module, imported as it is now; it may be edited afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    yield importlib.import_module("edited_nets")
    for name in ("edited_nets", "parts_of_nets"):
        sys.modules.pop(name, None)


def write(folder: Path, width: int = 3, first: str = "pass") -> None:
    (folder / "edited_nets.py").write_text(NETS.format(first=first))
    (folder / "parts_of_nets.py").write_text(PARTS.format(width=width))


def study(folder: Path, trainer: Any, **space: Any) -> ht.Study:
    return ht.Study(
        "agreed",
        trainer=trainer,
        data=dataset(folder),
        space={"lr": 0.1, **space},
        search=ht.Grid(epochs=2),
        minimize="loss",
        store=folder / "store",
    )


def units(folder: Path) -> int:
    with Store.open(folder / "store") as store:
        return sum("UnitFinished" in type(item.entry).__name__ for item in store.journal.read("agreed", 0))


def test_a_module_that_is_the_same_in_the_worker_is_trained(tmp_path: Path, nets: ModuleType) -> None:
    (tmp_path / "parts_of_nets.py").write_text("# a note\n" + PARTS.format(width=3))
    assert study(tmp_path, nets.Named()).run(workers=1, quiet=True).best.metrics["loss"] > 0


def test_a_module_edited_since_the_program_imported_it_is_refused_by_name(tmp_path: Path, nets: ModuleType) -> None:
    trainer = nets.Named()
    write(tmp_path, width=4)
    with pytest.raises(ht.RefusedError, match=r"parts_of_nets \(.*parts_of_nets.py\).*another version"):
        study(tmp_path, trainer).run(workers=2, quiet=True)


def test_a_replaced_worker_that_loads_an_edited_module_ends_the_run(tmp_path: Path, nets: ModuleType) -> None:
    """The first worker has edited the module and dies: what replaces it would train other code."""
    write(tmp_path, first="edit_and_die(values, seed)")
    with (tmp_path / "edited_nets.py").open("a") as file:
        file.write(EDIT)
    importlib.reload(nets)
    with pytest.raises(ht.RefusedError, match="parts_of_nets"):
        study(tmp_path, nets.Named()).run(workers=1, quiet=True)
    assert (tmp_path / "edited").exists()


def test_a_named_file_that_is_missing_for_workers_is_refused(tmp_path: Path, nets: ModuleType) -> None:
    (tmp_path / "weights.bin").write_text("1")
    trainer = nets.Named()
    trainer.weights = ht.file("weights.bin")
    job = study(tmp_path, trainer)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ht.RefusedError, match="weights.bin is missing or unreadable on"):
        job.run(workers=1, quiet=True)


PATCHED = """
import numpy as np
import torch
from torch import nn

import hoptree as ht


def forward(self, x):
    return nn.functional.linear(x, self.weight * 2, self.bias)


def net(hp):
    return nn.Linear(4, 2)


if __name__ == "__main__":
    nn.Linear.forward = forward
    x = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    data = ht.Dataset.from_arrays(x=x, y=(x[:, 0] > 0).astype(np.int64), partitions=2, valid=0.25)
    trainer = ht.Torch(net, loss=nn.functional.cross_entropy, optimizer="sgd")
    study = ht.Study("patched", trainer=trainer, data=data, space={"lr": 0.1, "batch_size": 8},
                     search=ht.Grid(epochs=1), minimize="loss")
    study.run(workers=1, quiet=True)
"""


def test_a_library_that_the_program_has_patched_is_refused(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PATCHED)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ},
    )
    assert done.returncode != 0
    assert "torch.nn.modules.linear.Linear.forward" in done.stderr
