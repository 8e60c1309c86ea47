"""Journals of earlier versions fold to the same trials, by any scheduler and any names of classes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hoptree
from hoptree.core.dispatch import Dispatcher
from hoptree.core.facts import RECORD_VERSION
from hoptree.core.policies import POLICIES
from hoptree.core.ready import ReadyQueue
from tests.golden.journals import GOLDEN, ledger, read, summary

JOURNALS = sorted(GOLDEN.glob("journal-*.jsonl"))
RENAMED = [
    "Form", "Values", "Phase", "Segment", "Piece", "Schedule", "Settings", "Node", "Trial",
    "ActiveLineage", "State", "Plan", "Entry", "FactPlace",
    "UnitFinishedFact", "StateEvaluatedFact", "RunFailedFact", "RunCancelledFact", "LateMessageFact",
    "StateLostFact", "UnitGiven", "EvaluationGiven", "StateDropped", "TrialReported", "TrialEnded", "TrialAsked",
    "TrialBranched", "TrialExtended", "TrialStopped", "TrialRetried", "WorkerJoined", "WorkerLost", "DriverStarted",
    "CostsLearned", "CostFormula", "Feature", "KnownResults", "StudyState", "Fold", "FactReader",
    "TrialRebased", "EarlierHistory",
]  # fmt: skip


def expected(journal: Path) -> list[dict[str, Any]]:
    return list(json.loads(journal.with_suffix(".trials.json").read_text()))


def test_there_is_one_of_every_version() -> None:
    versions = {json.loads(journal.read_text().splitlines()[0])["version"] for journal in JOURNALS}
    assert versions == set(range(1, RECORD_VERSION + 1))


def test_a_golden_journal_has_the_nodes_that_were_paid_for() -> None:
    journal = GOLDEN / "journal-1-nodes.jsonl"
    expected_ledger = json.loads(journal.with_suffix(".ledger.json").read_text())
    assert ledger(read(journal)) == expected_ledger
    assert {use["lost"] for use in expected_ledger["uses"]} == {False, True}
    assert any(use["busy"] for use in expected_ledger["uses"])


def test_they_hold_every_kind_of_fact() -> None:
    text = "".join(journal.read_text() for journal in JOURNALS)
    found = set(re.findall(r'"fact": "([a-z-]+)"', text))
    source = (Path(hoptree.__file__).parent / "core").glob("*.py")
    known = {tag for file in source for tag in re.findall(r'tag="([a-z-]+)"', file.read_text())}
    assert found == known


@pytest.mark.parametrize("journal", JOURNALS, ids=lambda path: path.stem)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_golden_journal_is_read_under_any_scheduler(
    journal: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decides(*_: object, **__: object) -> None:
        raise AssertionError("a fold asked what to do")

    for name in ("dispatch", "_start", "_start_best", "_match", "_may_stay", "_fill_ahead", "_next_evaluation"):
        monkeypatch.setattr(Dispatcher, name, decides)
    monkeypatch.setattr(ReadyQueue, "push", decides)
    for ahead in (False, True):
        for affinity in (False, True):
            state = read(journal, policy=policy, ahead=ahead, affinity=affinity, seed=7)
            assert summary(state) == expected(journal), (
                "stored studies would be read otherwise than they were written"
            )


def test_a_golden_journal_is_read_by_classes_of_other_names(tmp_path: Path) -> None:
    """A copy of the sources in which the classes of core and store have other names reads the same."""
    package = tmp_path / "hoptree"
    shutil.copytree(Path(hoptree.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    words = re.compile(rf"\b({'|'.join(RENAMED)})\b")
    count = 0
    for file in package.rglob("*.py"):
        text = file.read_text()
        lines = [line if "import" in line and "hoptree" not in line else words.sub(r"\1Renamed", line)
                 for line in text.split("\n")]  # fmt: skip
        count += sum(f"class {name}Renamed" in "\n".join(lines) for name in RENAMED)
        file.write_text("\n".join(lines))
    assert count >= len(RENAMED) - 2
    reader = words.sub(r"\1Renamed", (GOLDEN / "journals.py").read_text())
    program = reader.split("def write(")[0] + (
        "for name in sys.argv[1:]:\n    print(json.dumps(summary(read(Path(name)))))\n"
    )
    (tmp_path / "program.py").write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), *map(str, JOURNALS)],
        env=environment,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found == [expected(journal) for journal in JOURNALS]
