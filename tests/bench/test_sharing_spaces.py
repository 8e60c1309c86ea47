"""The spaces of bench/sharing, made to match the paper's merge rates, still do: by simulation, without training."""

from __future__ import annotations

import pytest
from bench.sharing.spaces import CASES, COUNTS, SETS, TOGETHER, configs, merge_rate

from hoptree.search.space import grid


@pytest.mark.parametrize("name", CASES)
def test_spaces_match_the_merge_rates_of_the_paper(name: str) -> None:
    case = CASES[name]
    assert merge_rate(case.space) == pytest.approx(case.paper, rel=0.01)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if hasattr(case.search, "trials")])
def test_searches_ask_for_the_whole_space(name: str) -> None:
    case = CASES[name]
    assert len(configs(case)) == case.search.trials


@pytest.mark.parametrize("name", SETS)
def test_several_spaces_match_the_merge_rates_of_the_paper(name: str) -> None:
    studies = SETS[name]
    rates = [merge_rate(*studies.spaces[:count]) for count in COUNTS]
    if studies.paper is not None:
        assert rates == pytest.approx(studies.paper, rel=0.02)
    alone = [merge_rate(space) for space in studies.spaces]
    assert min(alone) > 1.5  # as in the paper: 1.5 to 2.73
    assert max(alone) < 2.73
    assert {len(list(grid(space))) for space in studies.spaces} == {TOGETHER.trials}
