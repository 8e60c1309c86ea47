"""Every search ranks a goal that is NaN or infinite last, whatever the direction."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

from hoptree.search import ASHA, PBT, Goal, Hyperband, MedianStopping, Optuna, SuccessiveHalving
from hoptree.search.value_kinds import uniform
from tests.search.played_search import LOSS, PlayedSearch

BAD = [math.nan, math.inf, -math.inf]
SEARCHES: dict[str, Any] = {
    "halving": SuccessiveHalving(9, max_epochs=9),
    "hyperband": Hyperband(max_epochs=9),
    "asha, promote": ASHA(9, max_epochs=9),
    "asha, stop": ASHA(9, max_epochs=9, mode="stop"),
    "median": MedianStopping(12, epochs=9, startup=3, concurrent=4),
    "pbt": PBT(6, epochs=9, interval=3),
    "halving with tpe": SuccessiveHalving(9, max_epochs=9, sampler=Optuna("tpe")),
    "tpe": Optuna("tpe", trials=12, epochs=9, batch=3),
}


@pytest.mark.parametrize("maximize", [True, False])
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", SEARCHES)
def test_a_trial_that_is_not_finite_never_continues_and_is_never_a_source(
    name: str, bad: float, maximize: bool
) -> None:
    search = SEARCHES[name].search({"lr": uniform(0.0, 1.0)}, Goal("loss", maximize), 0)
    played = PlayedSearch(search, lambda trial, _epoch: bad if trial % 2 else 0.5 + trial / 100, Random(0)).play()
    extended = {trial for trial, grants in enumerate(played.grants) if len(grants) > 1}
    followed = set(played.sources.values())
    assert not {trial for trial in extended | followed if trial % 2}
    if name not in ("median", "tpe"):  # these give no trial more than it was granted first
        assert extended


def test_median_stopping_stops_trials_that_are_not_finite() -> None:
    search = MedianStopping(12, epochs=9, startup=3, concurrent=4).search({"lr": uniform(0.0, 1.0)}, LOSS, 0)
    played = PlayedSearch(
        search, lambda trial, _epoch: math.nan if trial > 7 else 0.5 + trial / 100, Random(0)
    ).play()
    assert {played.endings[trial] for trial in range(8, 12)} == {"stopped"}
