"""One run of each case of the bench of elastic runs."""

from __future__ import annotations

import pytest
from bench.elastic_runs import CASES, Case, run


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_run_is_the_same_whenever_it_is_repeated(case: Case) -> None:
    outcome = run(case, 3, again=True)
    again = run(case, 3, again=True)
    assert outcome is not None
    assert again is not None
    assert outcome._replace(seconds=0.0) == again._replace(seconds=0.0)
    assert outcome.plans > 1
    assert 0.5 < outcome.cost / outcome.forecast < 1.5
    assert outcome.lost == case.lost


def test_planned_once_it_is_planned_once() -> None:
    outcome = run(CASES[0], 3, again=False)
    assert outcome is not None
    assert outcome.plans == 1
