"""The contract finds what is wrong with a search, and the page on own procedures tells the truth."""

from __future__ import annotations

import math
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hoptree.core.actions import EndTrial, Report
from hoptree.search import Branch, Decision, Extend, Goal, Stop, Train
from hoptree.testing import ProcedureContract, check

PAGE = Path(__file__).parents[2] / "docs" / "own-procedure.md"
BLOCKS = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Halves:
    """Six trials for an epoch, then the best three for another; faults can be planted."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    def search(self, space: Any, goal: Goal, seed: int) -> Halves:
        new = Halves(self.fault)
        new.goal = goal
        new.random = random.Random(seed)
        return new

    goal: Goal
    random: random.Random

    def start(self) -> Sequence[Decision]:
        self.losses: dict[int, float] = {}
        self.gone: set[int] = set()
        self.ended: list[int] = []
        self.second = False
        source = random if self.fault == "global randomness" else self.random
        return [Train({"lr": source.random()}, 1) for _ in range(6)]

    def tell(self, news: Report | EndTrial) -> Sequence[Decision]:
        fault = self.fault
        match news:
            case Report(trial, _, metrics):
                loss = self.goal.loss(metrics)
                if fault == "guessed direction":
                    loss = next(iter(metrics.values()))
                self.losses[trial] = loss
                return None if fault == "nothing" else []  # type: ignore[return-value]
            case EndTrial(trial, ending) if self.second:
                return [Train({"lr": 1.0 + len(self.ended)}, 1)] if fault == "no end" else []
            case EndTrial(trial, ending):
                if ending != "complete":
                    self.gone.add(trial)
                    if fault == "waits for the failed":
                        return []
                if trial not in self.ended:
                    self.ended.append(trial)
        return self._close() if len(self.ended) == 6 else []

    def _close(self) -> list[Decision]:
        self.second = True
        fault = self.fault
        sound = [t for t in self.ended if t not in self.gone and self.losses[t] < math.inf]
        if fault == "extends the failed":
            return [Extend(trial, 2) for trial in range(3)]
        if fault == "extends NaN":
            sound = [t for t in self.ended if t not in self.gone]
        if fault == "order decides":
            return [Extend(trial, 2) for trial in sound[:3]]
        best = sorted(sorted(sound), key=lambda trial: self.losses[trial])[:3]
        match fault:
            case "unknown trial":
                return [Extend(17, 2)]
            case "grants nothing":
                return [Extend(trial, 1) for trial in best]
            case "too much":
                return [Extend(trial, 9) for trial in best]
            case "branches into the future":
                return [Branch(trial, 5, {"lr": 2.0}, 9) for trial in best]
            case "empty config":
                return [Train({}, 1)]
            case "no list":
                return Extend(best[0], 2)  # type: ignore[return-value]
            case "no decision":
                return ["extend"]  # type: ignore[list-item]
            case "unstable":
                return [Extend(trial, 2) for trial in best if id(self) % 2 or trial != best[0]]
        return [*(Extend(trial, 2) for trial in best), *(Stop(trial) for trial in sound if trial not in best)]


def test_a_sound_procedure_passes():
    check(ProcedureContract, Halves, synchronous=True, most_epochs=9)
    check(
        ProcedureContract, lambda: Halves("nothing"), synchronous=True, most_epochs=9
    )  # as a function does that returns nothing


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("waits for the failed", "does the search wait for a Report that never comes"),
        ("extends the failed", "failed or was stopped; it cannot go on"),
        ("extends NaN", "last reported NaN; such trials come last and never go on"),
        ("unknown trial", "expected a trial from 0 to 5"),
        ("grants nothing", "was granted 1 epochs before"),
        ("too much", "epochs were asked for, not 9"),
        ("branches into the future", "at: epoch 5"),
        ("empty config", "config: it is empty"),
        ("no list", r"returned Extend\(.*\), no list of decisions"),
        ("no decision", "'extend' was decided; expected Train, Extend, Branch or Stop"),
        ("order decides", "the order of reports changed the decisions"),
        ("guessed direction", "maximizing decides otherwise"),
        ("global randomness", "changed with the seed of the random module|a fresh search decides"),
        pytest.param("no end", "has not ended after", marks=pytest.mark.slow),
    ],
)
def test_seeded_faults_are_found(fault, message):
    with pytest.raises((AssertionError, ValueError), match=message):
        check(
            ProcedureContract,
            lambda: Halves(fault),
            synchronous=True,
            most_epochs=1_000_000 if fault == "no end" else 9,
        )


def test_a_search_that_cannot_be_replayed_is_found():
    class Moody(Halves):
        """Its second search decides otherwise."""

        count = 0

        def search(self, space: Any, goal: Goal, seed: int) -> Halves:
            type(self).count += 1
            return super().search(space, goal, seed + type(self).count)

    with pytest.raises(AssertionError, match=r"a fresh search decides|random module|direction|Train"):
        check(ProcedureContract, Moody, synchronous=True)


def test_the_page_holds_a_procedure_of_less_than_thirty_lines():
    lines = [line for line in BLOCKS.findall(PAGE.read_text())[0].splitlines() if line.strip()]
    assert len(lines) < 35  # of which imports are three
    assert len([line for line in lines if "import" not in line]) < 30


@pytest.mark.slow
def test_the_code_on_the_page_works(tmp_path: Path):
    """The programs of the page, as one file of tests, pass in a process of their own."""
    blocks = BLOCKS.findall(PAGE.read_text())[:4]
    (tmp_path / "test_page.py").write_text("\n\n".join(blocks))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_page.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout
    assert "9 passed" in done.stdout


def test_the_suites_need_no_pytest():
    code = "import sys, hoptree.testing; sys.exit('pytest' in sys.modules or 'hypothesis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=900).returncode == 0
