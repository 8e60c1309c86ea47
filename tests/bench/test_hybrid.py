"""Appendix D: the engine is never slower than pure hopping or pure data parallelism."""

import pytest
from bench.decisions.hybrid import slower, solve_case


@pytest.mark.parametrize("scaling", ["linear", "sublinear", "poor"])
@pytest.mark.parametrize("configs", [1, 3, 8, 13])
def test_the_engine_is_no_slower_than_the_pure_modes(scaling, configs):
    assert not slower(solve_case(scaling, "equal", "strict", configs))
