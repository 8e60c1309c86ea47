"""Every sampler of ours keeps the contract."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

import hoptree as ht
from hoptree.search.optuna_methods import METHODS
from hoptree.search.sampling import NAMES, make_sampler
from hoptree.testing import SamplerContract


def learner(method: str) -> Any:
    return ht.Optuna(method, options={} if method == "random" else {"n_startup_trials": 3})


def thirty(space: Any, seed: int) -> Any:
    """A Latin hypercube has to know how many configs it is for."""
    return make_sampler("latin-hypercube", space, seed, count=30)


class TestSamplers(SamplerContract):
    @pytest.fixture(params=[*(name for name in NAMES if name not in ("grid", "latin-hypercube")), thirty])
    def sampler(self, request: pytest.FixtureRequest) -> Any:
        return request.param


class TestGrid(SamplerContract):
    space: ClassVar = {"lr": ht.choice(0.1, 0.2, 0.3), "width": ht.choice(8, 16)}

    @pytest.fixture
    def sampler(self) -> Any:
        return "grid"


class TestOptuna(SamplerContract):
    steps = 16

    @pytest.fixture(params=[pytest.param(m, marks=[pytest.mark.slow] * (m == "gp")) for m in METHODS])
    def sampler(self, request: pytest.FixtureRequest) -> Any:
        return learner(request.param)
