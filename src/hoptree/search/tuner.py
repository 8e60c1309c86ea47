"""A tuner: one search taking part in an engine, its decisions turned into events and its trials numbered."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import assert_never, final

from hoptree.core.actions import EndTrial, Report
from hoptree.core.events import Event, TrialAsked, TrialBranched, TrialExtended, TrialStopped
from hoptree.core.lineage import config_items
from hoptree.search.protocol import Branch, Decision, Extend, Search, Stop, Train


@final
class Tuner:
    """Asks the engine for what a search decides; the search sees its own trial numbers, from 0.

    In the engine they are ``first``, ``first + step`` and so on, so that several tuners do not meet.
    """

    def __init__(
        self,
        search: Search,
        *,
        study: str = "",
        root: str = "",
        first: int = 0,
        step: int = 1,
        share: bool = True,
        barrier: bool = False,
    ) -> None:
        self._search = search
        self._study = study
        self._root = root
        self._first = first
        self._step = step
        self._count = 0
        self._share = share
        self._barrier = barrier

    def start(self) -> list[Event]:
        """Return what the search asks for first."""
        return list(self._events(self._search.start()))

    def tell(self, news: Report | EndTrial) -> list[Event]:
        """Pass news on and return what the search asks for then."""
        number = (news.trial - self._first) // self._step
        if isinstance(news, Report):
            own: Report | EndTrial = Report(number, news.epoch, news.metrics)
        else:
            own = EndTrial(number, news.ending, news.reason)
        decisions = self._search.tell(own)
        return list(self._events(decisions)) if decisions else []

    def _events(self, decisions: Sequence[Decision]) -> Iterator[Event]:
        for decision in decisions:
            match decision:
                case Train(config, until, every):
                    yield TrialAsked(
                        self._number(),
                        config_items(config),
                        until,
                        every,
                        self._study,
                        self._root,
                        self._barrier,
                        not self._share,
                    )
                case Branch(source, at, config, until, every):
                    items = config_items(config)
                    yield TrialBranched(self._number(), self._first + source * self._step, at, items, until, every)
                case Extend(trial, until):
                    yield TrialExtended(self._first + trial * self._step, until)
                case Stop(trial):
                    yield TrialStopped(self._first + trial * self._step)
                case _:
                    assert_never(decision)

    def _number(self) -> int:
        self._count += 1
        return self._first + (self._count - 1) * self._step


@final
class Tuners:
    """Several tuners in one engine: the n-th of m has every m-th trial, from n on."""

    def __init__(self, tuners: Sequence[Tuner], end: int = sys.maxsize) -> None:
        self._tuners = list(tuners)
        self._end = end  # trials from this number on are others'

    def start(self) -> list[Event]:
        """Return what all of them ask for first."""
        return [event for tuner in self._tuners for event in tuner.start()]

    def tell(self, news: Report | EndTrial) -> list[Event]:
        """Pass news on to whose trial it is; trials that no search asked for are nobody's."""
        if news.trial >= self._end:
            return []
        return self._tuners[news.trial % len(self._tuners)].tell(news)
