"""An edit that affects training changes the fingerprint; any other leaves it, with known exceptions.

Each edit is checked by fingerprint in every run of the tests, and trained for real, both ways, in the slow ones:
that shows that the tables are right about what an edit changes.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.identity.edits.case import Edit
from tests.identity.edits.run import TOPICS

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "what-counts-as-a-change.md"
ALARMS = 0.02  # the fraction of edits that may be false alarms


def edits(topic: str) -> list[Edit]:
    table: list[Edit] = importlib.import_module(f"tests.identity.edits.{topic}").EDITS
    return table


def answers(topic: str, what: str) -> dict[str, list[str]]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.identity.edits.run", topic, what]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    failed = {name: pair for name, pair in found.items() if any(each.startswith("error") for each in pair)}
    assert not failed, json.dumps(failed, indent=1)
    return found


@pytest.mark.parametrize("topic", TOPICS)
def test_the_fingerprint_notices_what_changes_training_and_nothing_else(topic: str) -> None:
    found = answers(topic, "fingerprint")
    table = [each for each in edits(topic) if each.mechanism == "code"]
    missed = [each.name for each in table if each.changes and len(set(found[each.name])) == 1]
    alarms = [each.name for each in table if not each.changes and len(set(found[each.name])) == 2]
    assert missed == [], "an edit that changes the training is not noticed"
    assert alarms == [each.name for each in table if each.known_alarm], "taken for changes, and listed as such"


@pytest.mark.slow
@pytest.mark.parametrize("topic", TOPICS)
def test_training_for_real_agrees_about_what_an_edit_changes(topic: str) -> None:
    found = answers(topic, "train")
    wrong = [each.name for each in edits(topic) if (len(set(found[each.name])) == 2) != each.changes]
    assert wrong == []


def test_the_tables_are_large_and_their_exceptions_few_and_listed() -> None:
    table = [each for topic in TOPICS for each in edits(topic)]
    assert len({each.name for each in table}) == len(table)
    changing = sum(each.changes for each in table)
    assert len(table) >= 200
    assert min(changing, len(table) - changing) >= 60
    alarms = [each for each in table if each.known_alarm]
    assert len(alarms) <= ALARMS * len(table)
    guide = " ".join(GUIDE.read_text(encoding="utf-8").split())
    assert [each.known_alarm for each in alarms if each.known_alarm not in guide] == []
