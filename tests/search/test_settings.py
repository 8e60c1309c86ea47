"""Settings of procedures: a wrong type or value raises an error by name, and numpy numbers are accepted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hoptree.core.errors import WorkloadError
from hoptree.search import ASHA, PBT, Goal, Hyperband, MedianStopping, Optuna, Random, SuccessiveHalving
from hoptree.search.grid import Grid
from hoptree.search.protocol import begin
from hoptree.search.value_kinds import choice

SOUND: dict[type, dict[str, Any]] = {
    Grid: {"epochs": 3, "every": 1},
    Random: {"trials": 3, "epochs": 3, "every": 1},
    SuccessiveHalving: {"trials": 9, "max_epochs": 9, "min_epochs": 1, "factor": 3, "every": 0},
    Hyperband: {"max_epochs": 9, "min_epochs": 1, "factor": 3, "rounds": 1, "every": 0},
    ASHA: {"trials": 9, "max_epochs": 9, "min_epochs": 1, "factor": 3, "concurrent": 4, "every": 0},
    MedianStopping: {"trials": 9, "epochs": 9, "grace": 1, "every": 1, "startup": 5, "concurrent": 4},
    PBT: {"population": 4, "epochs": 4, "interval": 1, "quantile": 0.25, "resample": 0.25, "every": 0},
    Optuna: {"trials": 4, "epochs": 2, "every": 1, "batch": 4},
}
NUMBERS = [(procedure, name) for procedure, given in SOUND.items() for name in given]
WRONG = ["3", None, -1, 1.5, math.nan, math.inf, True, [3], {}, (1,)]
SPACE = {"lr": choice(0.1, 0.2, 0.3)}


@pytest.mark.parametrize(("procedure", "name"), NUMBERS, ids=lambda value: getattr(value, "__name__", value))
def test_an_invalid_number_is_refused_by_name(procedure: Any, name: str):
    for wrong in WRONG:
        if procedure is Optuna and name in ("trials", "epochs") and wrong is None:
            continue  # it is a sampler then
        if procedure is ASHA and name == "trials" and wrong is None:
            continue  # it goes on until a time limit
        with pytest.raises(WorkloadError, match=f"^{name}: .*; expected"):
            procedure(**SOUND[procedure] | {name: wrong})


@pytest.mark.parametrize("procedure", SOUND, ids=lambda procedure: procedure.__name__)
def test_numbers_of_numpy_are_numbers(procedure: Any):
    """Also in the text by which a study identifies its search."""
    given = SOUND[procedure]
    numpys = {name: np.float64(v) if isinstance(v, float) else np.int64(v) for name, v in given.items()}
    assert repr(procedure(**numpys)) == repr(procedure(**given))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PBT(4, 4, 1, factors=0.8), "factors: 0.8; expected numbers above 0"),  # type: ignore[arg-type]
        (lambda: PBT(4, 4, 1, factors="ab"), "factors: 'ab'; expected numbers above 0"),  # type: ignore[arg-type]
        (lambda: PBT(4, 4, 1, factors=[True]), r"factors: \[True\]; expected numbers above 0"),
        (lambda: PBT(4, 4, 1, factors=[math.nan]), r"factors: \[nan\]; expected numbers above 0"),
        (lambda: PBT(4, 4, 1, factors=np.ones(2)), r"factors: array.*; expected numbers above 0"),  # type: ignore[arg-type]
        (lambda: PBT(4, 4, 1, change="lr"), r"change: 'lr'; expected a list of names, for example \['lr'\]"),
        (lambda: PBT(4, 4, 1, change=3), "change: 3; expected a list of names"),  # type: ignore[arg-type]
        (lambda: MedianStopping(9, 9, average="yes"), "average: 'yes'; expected True or False"),  # type: ignore[arg-type]
        (lambda: Optuna("tpe", options=[3]), r"options: \[3\]; expected names and values"),  # type: ignore[arg-type]
        (lambda: Optuna("tpe", options=None), "options: None; expected names and values"),  # type: ignore[arg-type]
    ],
)
def test_an_invalid_list_or_boolean_is_refused(make: Any, message: str):
    with pytest.raises(WorkloadError, match=message):
        make()


@pytest.mark.parametrize("method", [["tpe"], {}, 3, None, "cmaes"])
def test_a_value_that_is_not_a_method_is_refused(method: Any):
    with pytest.raises(WorkloadError, match=r"method: .*; expected one of tpe, cma-es, gp, random"):
        Optuna(method, trials=2, epochs=1).search(SPACE, Goal("loss", maximize=False), 0)


class Makes:
    """A procedure that returns something that is not a search."""

    def search(self, space: Any, goal: Goal, seed: int) -> Any:
        return 3


@pytest.mark.parametrize(
    ("procedure", "message"),
    [
        ("grid", r"search: 'grid'; expected a procedure such as Grid\(epochs=10\)"),
        (None, "search: None; expected a procedure"),
        (Grid, "search: <class .*Grid'>; expected a procedure"),
        (Makes(), r"returned 3, which has no start\(\); expected an object with start\(\) and tell\(update\)"),
    ],
)
def test_a_value_that_is_not_a_procedure_is_refused(procedure: Any, message: str):
    with pytest.raises(WorkloadError, match=message):
        begin(procedure, SPACE, Goal("loss", maximize=False), 0)
