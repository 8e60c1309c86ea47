"""The contract of a sampler, as tests: an implementer gets them for one fixture.

import pytest
from hoptree.testing import SamplerContract

class TestMine(SamplerContract):
    @pytest.fixture
    def sampler(self):
        return Mine(width=3)  # what a procedure is given as sampler=...
"""

from __future__ import annotations

import math
import random
from typing import ClassVar

import numpy as np

from hoptree.core.keys import seed
from hoptree.core.schedules import Config
from hoptree.search.match_config import decisions_of
from hoptree.search.parse_space import Space, read
from hoptree.search.protocol import Sampler
from hoptree.search.sampling import AnySampler, make_sampler
from hoptree.search.stable_repr import stable_text
from hoptree.search.value_kinds import choice, log


class SamplerContract:
    """The contract of every sampler; a subclass defines the fixture ``sampler`` and may set attributes below."""

    space: ClassVar[Space] = {"lr": log(1e-4, 1.0), "width": choice(8, 16, 32)}
    """The space from which configs are drawn."""

    steps = 30
    """How many asks and tells a test makes."""

    def test_configs_are_of_the_space(self, sampler: AnySampler) -> None:
        """The space can make what is given, and there is something."""
        root = read(self.space)
        given = self._run(make_sampler(sampler, self.space, 0), 0)
        assert given[0] is not None, "the first ask gave None: there is nothing to train"
        for config in given:
            assert config is None or decisions_of(root, config) is not None, f"{config} is not in the space"

    def test_the_same_asks_and_tells_give_the_same_configs(self, sampler: AnySampler) -> None:
        """A study resumes after a crash by repeating the asks and tells with a new sampler."""
        for sequence in range(4):
            first, again = (self._run(make_sampler(sampler, self.space, 1), sequence) for _ in range(2))
            assert first == again, f"after the same asks and tells it gave {again}, before it was {first}"

    def test_samplers_do_not_share_what_they_learn(self, sampler: AnySampler) -> None:
        """Two samplers used in turn return the same as each by itself."""
        alone = self._run(make_sampler(sampler, self.space, 2), 0)
        one, other = (make_sampler(sampler, self.space, 2) for _ in range(2))
        other.ask()
        other.tell(0, 1, -1e6)
        assert self._run(one, 0) == alone, "what another sampler was told changed what this one gives"

    def test_randomness_comes_from_the_seed(self, sampler: AnySampler) -> None:
        """Global random generators have no influence."""
        states = random.getstate(), np.random.get_state()
        try:
            runs = []
            for seed in (1, 2):
                random.seed(seed)
                np.random.seed(seed)
                runs.append(self._run(make_sampler(sampler, self.space, 3), 0))
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
        assert runs[0] == runs[1], "configs changed with the seed of the random module, or of NumPy's"

    def test_it_bears_any_losses(self, sampler: AnySampler) -> None:
        """All fail; all are the same; a loss is told again; the last are told first."""
        for loss in (math.inf, 0.0, -1e300):
            asked = make_sampler(sampler, self.space, 4)
            known = [asked.ask() for _ in range(6)]
            told = [number for number, config in enumerate(known) if config is not None]
            for number in reversed(told):
                asked.tell(number, 1, loss)
                asked.tell(number, 3, loss)
                asked.tell(number, 1, 0.5)
            asked.ask()

    def test_the_end_is_the_end(self, sampler: AnySampler) -> None:
        """After None there is nothing more."""
        asked = make_sampler(sampler, self.space, 5)
        given = [asked.ask() for _ in range(self.steps)]
        if None in given:
            after = given[given.index(None) :]
            assert not any(after), f"after None it gave {after}"

    def test_it_can_be_recognised(self, sampler: AnySampler) -> None:
        """A resumed study identifies its sampler by its text."""
        assert stable_text(sampler)

    def _run(self, sampler: Sampler, sequence: int) -> list[Config | None]:
        """Ask, with up to four open trials, and tell losses after 1, 3 or 9 epochs, some of them failures."""
        given: list[Config | None] = []
        under_way: list[tuple[int, int]] = []
        for step in range(self.steps):
            luck = seed("sampler contract", sequence, step)
            if not under_way or (len(under_way) < 4 and luck % 2):
                config = sampler.ask()
                given.append(config)
                if config is None:
                    break
                under_way.append((len(given) - 1, 1))
            else:
                number, epoch = under_way.pop(luck % len(under_way))
                sampler.tell(number, epoch, math.inf if luck % 7 == 0 else (luck % 100) / epoch)
                if luck % 3 == 0 and epoch < 9:
                    under_way.append((number, epoch * 3))
        return given
