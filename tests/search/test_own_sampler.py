"""User-defined samplers: where they are accepted, how they are identified, and what the contract finds."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hoptree as ht
from hoptree.core.errors import WorkloadError
from hoptree.core.schedules import Config
from hoptree.search import Goal, Optuna, Random, Train, make_sampler
from hoptree.search.stable_repr import stable_text
from hoptree.testing import SamplerContract, check
from tests.system.plain import study

PAGE = Path(__file__).parents[2] / "docs" / "own-procedure.md"
BLOCKS = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SPACE = {"lr": ht.log(1e-4, 1.0), "width": ht.choice(8, 16, 32)}


class Steps:
    """Returns decreasing rates; can have deliberate faults."""

    shared: int = 0

    def __init__(self, space: Any, seed: int, fault: str = "") -> None:
        self.fault = fault
        self.count = 0
        self.random = random.Random(seed)

    def ask(self) -> Config | None:
        self.count += 1
        match self.fault:
            case "outside":
                return {"lr": 7.0, "width": 8}
            case "global randomness":
                return {"lr": 0.5 + random.random() / 4, "width": 8}
            case "shared":
                return {"lr": 0.5 ** min(10, type(self).shared % 7 + 1), "width": 8}
            case "after the end":
                return {"lr": 0.5, "width": 8} if self.count % 5 else None
            case "nothing":
                return None
        return {"lr": round(self.random.uniform(0.1, 0.9), 6), "width": 8}

    def tell(self, config: int, epoch: int, loss: float) -> None:
        type(self).shared += 1
        if self.fault == "no failures":
            int(loss)


@dataclass(frozen=True)
class Stepping:
    fault: str = ""

    def sampler(self, space: Any, seed: int) -> Steps:
        return Steps(space, seed, self.fault)


def stepping(space: Any, seed: int) -> Steps:
    return Steps(space, seed)


@pytest.mark.parametrize("own", [Stepping(), stepping, Steps, partial(Steps, fault="")])
def test_a_sound_sampler_passes_and_is_taken_by_every_procedure(own: Any) -> None:
    check(SamplerContract, lambda: own)
    configs = [make_sampler(own, SPACE, 3).ask()]
    for procedure in (
        ht.Random(trials=4, epochs=2, sampler=own),
        ht.SuccessiveHalving(trials=4, max_epochs=4, factor=2, sampler=own),
        ht.Hyperband(max_epochs=4, factor=2, sampler=own),
        ht.ASHA(trials=4, max_epochs=4, factor=2, sampler=own),
        ht.MedianStopping(trials=4, epochs=4, sampler=own),
        ht.PBT(population=4, epochs=4, interval=2, sampler=own),
    ):
        first = procedure.search(SPACE, Goal("loss", maximize=False), 3).start()[0]
        assert isinstance(first, Train)
        assert first.config == configs[0]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("outside", "is not in the space"),
        ("global randomness", "changed with the seed of the random module|after the same asks and tells"),
        ("shared", "after the same asks and tells|what another sampler was told|of the random module"),
        ("after the end", "after None it gave"),
        ("nothing", "the first ask gave None"),
        ("no failures", "cannot convert float infinity"),
    ],
)
def test_seeded_faults_are_found(fault: str, message: str) -> None:
    with pytest.raises((AssertionError, OverflowError), match=message):
        check(SamplerContract, lambda: Stepping(fault))


# --- errors ------------------------------------------------------------------------------------------------


def gives(config: Any) -> Any:
    class Gives:
        def ask(self) -> Any:
            return config

        def tell(self, config: int, epoch: int, loss: float) -> None: ...

    return lambda space, seed: Gives()


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (7, "sampler: 7; expected one of random, grid, sobol"),
        ("annealing", "sampler: 'annealing'; expected one of random, grid"),
        (Random(3, 1), r"sampler: Random\(trials=3.*; expected one of random, grid"),
        (Optuna, r"sampler: the class Optuna; expected Optuna\(\.\.\.\)"),
        (Optuna("tpe", trials=3), r"sampler: Optuna\('tpe', \.\.\.\) with trials=3; leave it out"),
        (Optuna("tpe", epochs=3), r"with epochs=3; leave it out: the search that uses the sampler"),
        (lambda: None, r"too many positional arguments; expected a callable of a space and a seed"),
        (lambda space, seed: 7, r"returned 7, which has no ask\(\); expected an object with ask\(\)"),
        (gives([1]), r"returned \[1\]: it is not a dictionary; expected names with scalars"),
        (gives({}), r"returned \{\}: config: it is empty"),
        (gives({"lr": [1]}), r"returned \{'lr': \[1\]\}: config\['lr'\]"),
    ],
)
def test_a_value_that_is_not_a_sampler_is_refused(own: Any, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        make_sampler(own, SPACE, 0).ask()


class Nameless:
    def sampler(self, space: Any, seed: int) -> Steps:
        return Steps(space, seed)


def test_a_sampler_that_cannot_be_recognised_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"has no repr but its memory address.*give its class a __repr__"):
        study(tmp_path, search=ht.Random(trials=2, epochs=1, sampler=Nameless()))


# --- identification --------------------------------------------------------------------------------------


def test_texts_last() -> None:
    """A repr without an address keeps the text that stores contain."""
    for value in (
        ht.Grid(epochs=6),
        [ht.Grid(epochs=5), ht.Random(20, epochs=5)],
        (ht.Grid(epochs=5),),
        ht.Hyperband(max_epochs=27, sampler=ht.Optuna("tpe", options={"n_ei_candidates": 12, "group": True})),
        ht.PBT(population=4, epochs=4, interval=2),
        ht.Random(4, epochs=2, sampler=Stepping("x")),
    ):
        assert stable_text(value) == repr(value).replace(", early=False", "")  # a setting that was added later
    assert stable_text(ht.Random(4, epochs=2, sampler=stepping)).endswith("sampler=stepping)")
    assert stable_text(partial(Steps, fault="a")) == "partial(Steps, fault='a')"
    assert stable_text(ht.Optuna("tpe", options={"gamma": stepping})).count("options={'gamma': stepping}") == 1


def test_a_study_with_its_own_sampler_continues(tmp_path: Path) -> None:
    def mine(own: Any) -> ht.Study:
        space = {"lr": ht.log(1e-4, 1.0), "width": ht.choice(8, 16), "act": "fine", "nap": 0.0, "where": ""}
        return study(tmp_path, space=space, search=ht.Random(trials=3, epochs=1, sampler=own))

    assert mine(stepping).run(workers=1).savings.epochs_trained == 3

    def stepping_again(space: Any, seed: int) -> Steps:
        return Steps(space, seed)

    stepping_again.__qualname__ = "stepping"  # the same function in another process
    assert mine(stepping_again).run(workers=1).savings.epochs_trained == 0
    with pytest.raises(ht.StudyChangedError, match="search"):
        mine(Stepping()).run(workers=1)

    def edited(space: Any, seed: int) -> Steps:
        return Steps(space, seed + 1)

    edited.__qualname__ = "stepping"  # its code has changed since
    with pytest.raises(ht.StudyChangedError, match="proposes another config for trial 0: before"):
        mine(edited).run(workers=1)


@pytest.mark.slow
def test_the_code_on_samplers_works(tmp_path: Path) -> None:
    """The sampler in the docs passes the contract, in a separate process."""
    sampler, tests = BLOCKS.findall(PAGE.read_text())[4:]
    (tmp_path / "test_page.py").write_text(f"{sampler}\n\n{tests}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_page.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout
    assert "7 passed" in done.stdout
