"""A driver that dies after any journal entry: a resumed study ends with the same trials."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from examples.own_backend import InProcess

import hoptree as ht
from hoptree.backends import Backend, TrainingJob
from hoptree.backends.simulated import SimulatedBackend
from hoptree.driver.recorder import JournalRecorder
from hoptree.simulator import Cluster, Workload
from hoptree.simulator.workload import Landscape
from tests.system.plain import Plain, dataset

ROOT = Path(__file__).parents[2]
SPACE = {"lr": ht.choice(0.1, ht.multistep(0.1, at=[2], gamma=0.5), 0.2), "width": ht.choice(1, 2)}


class KilledError(BaseException):
    """The end of a process, as far as one can have it within another."""


@dataclass(frozen=True)
class Simulated:
    """Real driver and store, made-up workers: the metrics of a state follow from its lineage."""

    def open(self, job: TrainingJob) -> Backend:
        def metrics(values: Any, epoch: int, key: str) -> dict[str, float]:
            return {"loss": int(key[:6], 16) / 2**24 + 1 / (1 + epoch)}

        landscape = Landscape(Workload().landscape().seconds, metrics)
        return SimulatedBackend(Cluster(workers=2, replicas=2), job.dataset.partitions, landscape)


def study(folder: Path) -> ht.Study:
    return ht.Study(
        "prefixes",
        trainer=Plain(),
        data=dataset(folder),
        space=SPACE,
        search=ht.SuccessiveHalving(6, max_epochs=4, factor=2),
        minimize="loss",
        store=folder / "store",
    )


def run(folder: Path, backend: Any) -> list[tuple[Any, ...]]:
    trials = study(folder).run(backend=backend, quiet=True).trials
    return [(trial.number, trial.config, trial.state, trial.epochs, trial.curve) for trial in trials]


def killed(folder: Path, backend: Any, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a study whose driver dies right after the n-th entry is in the journal."""
    append, count = JournalRecorder.append, [0]

    def dying(self: JournalRecorder, step: Any) -> None:
        append(self, step)
        count[0] += 1
        if count[0] >= after:
            raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(JournalRecorder, "append", dying)
        with pytest.raises(KilledError):
            run(folder, backend)


def entries(folder: Path) -> int:
    with study(folder).open_store(create=False) as store:
        return store.journal.last("prefixes")


def test_every_prefix_of_a_simulated_study_leads_to_the_same_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "whole").mkdir()
    expected = run(tmp_path / "whole", Simulated())
    assert {state for _, _, state, _, _ in expected} >= {"complete", "stopped"}
    count = entries(tmp_path / "whole")
    assert count > 40
    for after in range(1, count):
        folder = tmp_path / f"{after}"
        folder.mkdir()
        killed(folder, Simulated(), after, monkeypatch)
        assert entries(folder) == after
        assert run(folder, Simulated()) == expected, f"killed after entry {after}"


def test_killed_again_and_again_after_an_entry_or_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "often").mkdir()
    expected = run(tmp_path / "whole", InProcess())
    for number in range(60):
        try:
            killed(tmp_path / "often", InProcess(), 3 + number % 3, monkeypatch)
        except pytest.fail.Exception:
            break  # it was over before
    assert run(tmp_path / "often", InProcess()) == expected


PROGRAM = """
import os, sys
from pathlib import Path
from hoptree.driver.recorder import JournalRecorder
from tests.system.test_prefixes import InProcess, study
folder, after = Path(sys.argv[1]), int(sys.argv[2])
append, count = JournalRecorder.append, [0]
def dying(self, step):
    append(self, step)
    count[0] += 1
    if count[0] >= after > 0:
        os.kill(os.getpid(), 9)
JournalRecorder.append = dying
results = study(folder).run(backend=InProcess(), quiet=True)
print([(trial.number, trial.state, trial.fingerprint) for trial in results.trials])
"""


def real(folder: Path, after: int = 0) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-c", PROGRAM, str(folder), str(after)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder)


def check_real(tmp_path: Path, some: int) -> None:
    whole = real(tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    count = entries(tmp_path / "whole")
    for number in range(some):
        after = 1 + number * (count - 1) // some
        folder = tmp_path / f"{after}"
        assert real(folder, after).returncode == -9
        resumed = real(folder)
        assert resumed.returncode == 0, resumed.stderr
        assert resumed.stdout == whole.stdout, f"killed after entry {after}"


def test_a_real_study_killed_at_a_few_prefixes_gives_the_same_bits(tmp_path: Path) -> None:
    check_real(tmp_path, 4)


@pytest.mark.slow
def test_a_real_study_killed_at_fifty_prefixes_gives_the_same_bits(tmp_path: Path) -> None:
    check_real(tmp_path, 50)
