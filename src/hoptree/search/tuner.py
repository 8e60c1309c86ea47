"""A tuner connects one search to an engine: it turns decisions into events and numbers the trials."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, final

from hoptree.core.actions import EndTrial, Report
from hoptree.core.errors import WorkloadError
from hoptree.core.events import USER, Asker, Event, TrialAsked, TrialBranched, TrialExtended, TrialStopped
from hoptree.core.lineage import ConfigItems, config_items
from hoptree.core.plain_values import plain
from hoptree.core.schedules import Config
from hoptree.search.protocol import Branch, Decision, Extend, Search, Stop, Train
from hoptree.search.trial_numbers import TrialNumbers


@final
class Tuner:
    """Requests from the engine what a search decides; the search sees its own trial numbers, from 0.

    ``place`` is the index of the search in its study; ``numbers`` assigns the engine numbers of trials.
    """

    def __init__(
        self,
        search: Search,
        *,
        study: str = "",
        root: str = "",
        place: int = 0,
        numbers: TrialNumbers | None = None,
        share: bool = True,
        barrier: bool = False,
    ) -> None:
        self._search = search
        self._study = study
        self._root = root
        self.place = study, place
        self.numbers = TrialNumbers((study,)) if numbers is None else numbers
        self._count = 0
        self._share = share
        self._barrier = barrier

    def start(self) -> list[Event]:
        """Return the events of the first decisions."""
        return list(self._events(self._search.start(), "start()"))

    def tell(self, update: Report | EndTrial) -> list[Event]:
        """Pass a report or the end of a trial on, and return the events of the resulting decisions."""
        requester = self.numbers.asker(update.trial)
        assert requester is not None, f"no search requested trial {update.trial}"
        number = requester[1][1]
        if isinstance(update, Report):
            own: Report | EndTrial = Report(number, update.epoch, update.metrics)
        else:
            own = EndTrial(number, update.ending, update.reason)
        decisions = self._search.tell(own)
        return [] if decisions is None else list(self._events(decisions, "tell(update)"))

    def _events(self, decisions: Sequence[Decision], method: str) -> Iterator[Event]:
        if not isinstance(decisions, Iterable):
            raise self._wrong(decisions, f"{method} returned it; expected a list of decisions, which may be empty")
        for decision in decisions:
            match decision:
                case Train(config, until, every):
                    items = self._items(config, decision)
                    epochs = self._whole(decision, "until", until, 1), self._whole(decision, "every", every, 0)
                    asker = self._next()
                    yield TrialAsked(
                        self._number(asker),
                        items,
                        *epochs,
                        self._study,
                        self._root,
                        self._barrier,
                        not self._share,
                        asked_by=asker,
                    )
                case Branch(source, at, config, until, every):
                    items = self._items(config, decision)
                    branch_point = self._known(decision, "source", source), self._whole(decision, "at", at, 1)
                    epochs = self._whole(decision, "until", until, 1), self._whole(decision, "every", every, 0)
                    asker = self._next()
                    yield TrialBranched(self._number(asker), *branch_point, items, *epochs, asked_by=asker)
                case Extend(trial, until):
                    number = self._known(decision, "trial", trial)
                    yield TrialExtended(number, self._whole(decision, "until", until, 1))
                case Stop(trial):
                    yield TrialStopped(self._known(decision, "trial", trial))
                case _:
                    raise self._wrong(decision, f"{method} returned it; expected Train, Extend, Branch or Stop")

    # --- checks of decisions: the search may be the user's own ------------------------------------------

    def _items(self, config: Config, decision: Decision) -> ConfigItems:
        try:
            return config_items(config)
        except WorkloadError as error:
            raise self._wrong(decision, str(error)) from None

    def _whole(self, decision: Decision, field: str, value: Any, least: int) -> int:
        number = plain(value)
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise self._wrong(decision, f"{field}: {value!r}; expected a whole number, at least {least}")
        return number

    def _known(self, decision: Decision, field: str, trial: Any) -> int:
        """Return the engine number of one of the search's own trials."""
        number = self._whole(decision, field, trial, 0)
        if number >= self._count:
            valid = f"a trial from 0 to {self._count - 1}" if self._count else "Train first: there is no trial yet"
            raise self._wrong(decision, f"{field}: {number}; expected {valid}")
        return self._number((self.place[1], number))

    def _wrong(self, given: object, problem: str) -> WorkloadError:
        return WorkloadError(f"search: {type(self._search).__qualname__} decided {given!r}: {problem}")

    def _next(self) -> Asker:
        self._count += 1
        return self.place[1], self._count - 1

    def _number(self, asker: Asker) -> int:
        return self.numbers.number(self._study, asker)


@final
class Tuners:
    """Several tuners in one engine that share its trial numbers."""

    def __init__(self, tuners: Sequence[Tuner], numbers: TrialNumbers) -> None:
        self._tuners = {tuner.place: tuner for tuner in tuners}
        self.numbers = numbers

    def start(self) -> list[Event]:
        """Return the events of the first decisions of all."""
        return [event for tuner in self._tuners.values() for event in tuner.start()]

    def tell(self, update: Report | EndTrial) -> list[Event]:
        """Pass a report or the end of a trial to the tuner that requested it; ignore trials of no search."""
        study, (place, _) = self.numbers.asker(update.trial) or ("", (USER, 0))
        tuner = self._tuners.get((study, place))
        return [] if tuner is None else tuner.tell(update)
