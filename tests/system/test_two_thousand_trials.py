"""A driver of 2,000 trials stays small; what its decisions take is measured by `python -m bench.trials`."""

from __future__ import annotations

import pytest
from bench.trials import fresh


@pytest.mark.slow
@pytest.mark.parametrize("search", ["ASHA", "Hyperband", "Random"])
def test_a_driver_of_two_thousand_trials_holds_less_than_300_megabytes(search: str) -> None:
    figures = fresh(search)
    assert figures.trials >= 2_000
    assert figures.bytes < 300e6
