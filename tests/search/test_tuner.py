"""A tuner turns decisions into events, and raises errors for invalid decisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hoptree.core.actions import EndTrial
from hoptree.core.errors import WorkloadError
from hoptree.core.events import TrialAsked, TrialExtended
from hoptree.search import Branch, Extend, Stop, Train, Tuner

CONFIG = {"lr": 0.1}


class Says:
    """A search that returns the given decisions."""

    def __init__(self, start: Any, tell: Any = ()) -> None:
        self._start = start
        self._tell = tell

    def start(self) -> Any:
        return self._start

    def tell(self, update: Any) -> Any:
        return self._tell


@pytest.mark.parametrize(
    ("decided", "message"),
    [
        (None, r"None: start\(\) returned it; expected a list of decisions"),
        (Train(CONFIG, 1), r"until=1, .*: start\(\) returned it; expected a list of decisions"),
        ([7], r"7: start\(\) returned it; expected Train, Extend, Branch or Stop"),
        ([Train(CONFIG, 0)], "until: 0; expected a whole number, at least 1"),
        ([Train(CONFIG, 1.5)], "until: 1.5; expected a whole number"),  # type: ignore[arg-type]
        ([Train(CONFIG, True)], "until: True; expected a whole number"),
        ([Train(CONFIG, 1, -1)], "every: -1; expected a whole number, at least 0"),
        ([Train({"lr": [1]}, 1)], r"config\['lr'\]: value: \[1\]; expected a number"),  # type: ignore[dict-item]
        ([Train(None, 1)], "config: None; expected names and values"),  # type: ignore[arg-type]
        ([Extend(0, 2)], "trial: 0; expected Train first: there is no trial yet"),
        ([Train(CONFIG, 1), Extend(1, 2)], "trial: 1; expected a trial from 0 to 0"),
        ([Train(CONFIG, 1), Stop(-1)], "trial: -1; expected a whole number, at least 0"),
        ([Train(CONFIG, 1), Branch(2, 1, CONFIG, 2)], "source: 2; expected a trial from 0 to 0"),
        ([Train(CONFIG, 1), Branch(0, 0, CONFIG, 2)], "at: 0; expected a whole number, at least 1"),
    ],
)
def test_invalid_arguments_are_refused_before_anything_runs(decided: Any, message: str):
    with pytest.raises(WorkloadError, match=f"^search: Says decided .*{message}"):
        Tuner(Says(decided)).start()


def test_a_search_need_not_return_anything_when_nothing_follows():
    tuner = Tuner(Says([Train(CONFIG, 1)], None))
    tuner.start()
    assert tuner.tell(EndTrial(0, "complete")) == []


def test_numbers_of_numpy_become_pythons_own():
    events = Tuner(Says([Train(CONFIG, np.int64(3)), Extend(np.int64(0), np.int32(5))])).start()  # type: ignore[arg-type]
    asked, extended = events
    assert isinstance(asked, TrialAsked)
    assert isinstance(extended, TrialExtended)
    assert [type(asked.until), type(extended.trial), type(extended.until)] == [int, int, int]
