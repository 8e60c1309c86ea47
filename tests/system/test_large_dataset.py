"""A dataset larger than the memory a worker may have: built and trained on, with their own memory watched.

Own memory is RssAnon: what a process cannot share and the system cannot take back. Pages of mapped files do not
count; that they are shared and taken back is the point of mapping.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc

from hoptree.backends.local import slot_folders_of_study
from hoptree.data import Dataset
from tests.data.room import GIB, room

FEATURES = 1024
ROWS = 1 << 15  # per input file: 128 MiB
FILES = 40  # 4 GiB to train on and 1 GiB for validation, the default share
PARTITIONS = 4  # of 1 GiB each: whoever copies one has had more than its share
DISK = 8 * GIB  # the dataset, one file twice more while it is written, and something to spare

BUILD = "from hoptree.ui.cli import main; main()"
TRAIN = f"""
import json
from torch import nn
import hoptree as ht

def net(hp):
    return nn.Linear({FEATURES}, 2)

if __name__ == "__main__":
    study = ht.Study(
        "large",
        trainer=ht.Torch(
            net, loss=nn.functional.cross_entropy, optimizer="sgd", metrics={{"accuracy": ht.accuracy}}
        ),
        data=ht.Dataset.open("dataset"),
        space={{"lr": ht.choice(0.001, 0.01), "batch_size": 4096}},
        search=ht.Grid(epochs=1),
        maximize="accuracy",
    )
    results = study.run(workers=2)
    print(json.dumps([results.savings.epochs_trained, [trial.state for trial in results.trials]]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with room(tmp_path, DISK):
        yield tmp_path
    shutil.rmtree(slot_folders_of_study(tmp_path / ".hoptree", "large"), ignore_errors=True)


def write_input(folder: Path) -> None:
    """Write one file of rows under many names, so that the input takes no room; building reads every name."""
    folder.mkdir()
    x = np.random.default_rng(0).random((ROWS, FEATURES), dtype=np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), FEATURES)
    batch = pa.RecordBatch.from_arrays([column, pa.array((x[:, 0] > 0.5).astype(np.int64))], names=["x", "y"])
    first = folder / "00.arrow"
    with ipc.new_file(str(first), batch.schema) as file:
        file.write_batch(batch)
    for number in range(1, FILES):
        (folder / f"{number:02d}.arrow").hardlink_to(first)


def own_memory(driver: int) -> dict[int, tuple[str, int]]:
    """Return the command line and the bytes of own memory of a process and all that it started."""
    found: dict[int, tuple[str, int]] = {}
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                lines = dict(line.split(":", 1) for line in (entry / "status").read_text().splitlines())
                parents[int(entry.name)] = int(lines["PPid"])
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[int(entry.name)] = command, int(lines["RssAnon"].split()[0]) << 10
            except (OSError, KeyError):  # gone by now, or a thread of the kernel
                continue
    ours = {driver}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return {pid: found[pid] for pid in ours & found.keys()}


def watched(folder: Path, *command: str, seconds: float) -> tuple[str, list[int], list[int]]:
    """Run a program, and return what it printed and the peaks of own memory, of itself and of its workers."""
    process = subprocess.Popen([sys.executable, *command], cwd=folder, stdout=subprocess.PIPE, text=True)
    peaks: dict[int, int] = {}
    workers: set[int] = set()
    deadline = time.monotonic() + seconds
    try:
        while True:
            for pid, (line, size) in own_memory(process.pid).items():
                peaks[pid] = max(size, peaks.get(pid, 0))
                if "hoptree.worker" in line:
                    workers.add(pid)
            try:
                printed, _ = process.communicate(timeout=0.1)
            except subprocess.TimeoutExpired:
                assert time.monotonic() < deadline, f"{command[:3]} has not ended after {seconds} s"
            else:
                break
    finally:
        process.kill()  # its workers end with it
        process.wait()
    assert process.returncode == 0
    own = [peaks[pid] for pid in peaks.keys() - workers]
    return printed, own, [peaks[pid] for pid in sorted(workers)]


@pytest.mark.slow
def test_four_gibibytes_train_with_less_than_one_of_own_memory(folder: Path) -> None:
    write_input(folder / "in")
    build = ("-c", BUILD, "data", "build", "in", "--to", "dataset", "--partitions", str(PARTITIONS))
    _, built, _ = watched(folder, *build, seconds=1200)
    dataset = Dataset.open(folder / "dataset")
    assert dataset.rows * FEATURES * 4 == 4 * GIB
    assert dataset.valid_rows * FEATURES * 4 == GIB
    (folder / "train.py").write_text(TRAIN)
    printed, driver, workers = watched(folder, "train.py", seconds=1200)
    assert json.loads(printed) == [2, ["complete", "complete"]]
    for name, peaks in [("build", built), ("driver", driver), ("workers", workers)]:
        print(name, ", ".join(f"{peak / 2**20:.0f} MiB" for peak in peaks))
    assert len(workers) == 2
    assert max(workers) < GIB
    assert max(built) < GIB
