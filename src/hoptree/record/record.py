"""The record of a study: what its journal tells, folded. Results, tables and a driver that goes on begin here."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, final

import msgspec

from hoptree.backends.event_loop import Observer, TrialAsker
from hoptree.core.actions import EndTrial, Report
from hoptree.core.errors import StudyChangedError
from hoptree.core.events import Event, TrialAsked, TrialBranched, TrialExtended, TrialRetried
from hoptree.core.fact_reader import FactReader
from hoptree.core.plan import Node, Place, Trial
from hoptree.core.settings import Settings
from hoptree.core.steps import Step
from hoptree.core.study_state import StudyState

if TYPE_CHECKING:
    from hoptree.search.trial_numbers import TrialNumbers
    from hoptree.store.journal import Recorded


class TrialUnit(NamedTuple):
    """One unit of a trial: the node it belongs to, its number, and the partition that it visits."""

    node: Node
    number: int
    partition: int


@final
class Record:
    """The state that a journal has made of a study, and until when it tells."""

    def __init__(self, settings: Settings, state: StudyState | None = None, now: float = 0.0) -> None:
        self.state = StudyState(settings) if state is None else state
        self.settings = settings
        self.plan = self.state.plan
        self.now = now
        self._free = settings.order == "free"

    def replay(self, entries: Iterable[Recorded]) -> Iterator[Step]:
        """Take a journal in, and yield every step that it tells of."""
        reader = FactReader(self.state)
        for recorded in entries:
            step = reader.take(recorded.entry, recorded.now)
            self.now = recorded.now
            yield step

    def read(self, entries: Iterable[Recorded]) -> Record:
        """Take a journal in, and return itself."""
        for _ in self.replay(entries):
            pass
        return self

    def resume(
        self, asks: TrialAsker, entries: Iterable[Recorded], numbers: TrialNumbers, watches: Sequence[Observer] = ()
    ) -> list[Event]:
        """Take a journal in, tell searches what they were told, and return what they ask for and is not in it.

        ``numbers`` are those from which the searches' trials get theirs.
        """
        for step in self.replay(entries):
            for watch in watches:
                watch(step)
        numbers.recall(self.state.trials.values())
        owed = list(asks.start())
        bare = [_request(event) for event in owed]
        for part in self.state.dialogue:
            if isinstance(part, Report | EndTrial):
                new = asks.tell(part)
                owed.extend(new)
                bare.extend(map(_request, new))
            elif owed and not isinstance(part, TrialRetried):
                with suppress(ValueError):  # not in order: what a wider search adds is asked for later
                    place = bare.index(_request(part))
                    del owed[place], bare[place]
        self._refuse_second_thoughts(owed)
        return owed

    def _refuse_second_thoughts(self, owed: Iterable[Event]) -> None:
        """Refuse a search that would begin a trial otherwise than the journal says it did."""
        for event in owed:
            if not isinstance(event, TrialAsked | TrialBranched):
                continue
            known = self.by_number.get(event.trial)
            if known is not None and known.history[-1].config != event.config:
                before, now = dict(known.history[-1].config), dict(event.config)
                raise StudyChangedError(
                    f"search: told the same as before, it decides otherwise: trial {event.trial} was begun with "
                    f"{before}, and would be with {now}; one of your own does so when its code has changed, and "
                    "Optuna's samplers may with another version or processor; go on with what began the study, or "
                    "give it another name: what both have in common is found in the store"
                )

    def note(self, step: Step) -> None:
        """Note the time, as a watch of the drive loop: the engine has changed the state itself."""
        self.now = step.now

    @property
    def by_number(self) -> dict[int, Trial]:
        """All trials by number, in the order in which they were asked for."""
        return self.state.trials

    @property
    def trials(self) -> list[Trial]:
        """All trials, in the order in which they were asked for."""
        return list(self.state.trials.values())

    @property
    def live(self) -> int:
        """How many trials have not ended."""
        return self.state.live

    def place(self, trial: Trial) -> Place | None:
        """Return where a trial stands, by the epochs that it has reported; None before the first."""
        if not trial.done:
            return None
        node, unit = self.plan.way(trial, trial.done * self.settings.partitions)[-1]
        return Place(node, unit)

    def units(self, trial: Trial) -> Iterator[TrialUnit]:
        """Yield what a trial consists of up to where it stands, in order."""
        partitions = self.settings.partitions
        unit, rotation = 0, 0
        for node, end in self.plan.way(trial, trial.done * partitions):
            while unit < end:
                if unit % partitions == 0:
                    rotation = node.rotation
                visits = self.state.visits[node.id, unit] if self._free else (rotation + unit) % partitions
                yield TrialUnit(node, unit, visits)
                unit += 1


@final
class ReplayedRequests:
    """Asks again for what was asked for in a journal, by searches and by users: each after all news before it.

    News may come in another order now, and what failed then may go on; what is asked for is the same.
    """

    def __init__(self, settings: Settings, journal: Iterable[Recorded]) -> None:
        self._asked: deque[tuple[int, Event]] = deque()  # after how much news each was asked for
        self._news: list[tuple[int, int] | None] = []
        for part in Record(settings).read(journal).state.dialogue:
            if isinstance(part, Report | EndTrial):
                self._news.append(_which(part))
            elif isinstance(part, TrialRetried):  # now it may not fail, so nobody waits to hear that it has
                ends = [place for place, news in enumerate(self._news) if news == (part.trial, 0)]
                if ends:
                    self._news[ends[-1]] = None
            else:
                self._asked.append((len(self._news), part))
        self._heard: Counter[tuple[int, int]] = Counter()
        self._next = 0  # news up to here have been heard again

    def start(self) -> Sequence[Event]:
        """Return what was asked for first."""
        return self._due()

    def tell(self, news: Report | EndTrial) -> Sequence[Event]:
        """Take news in and return what was asked for after it, and after all that came before it then."""
        self._heard[_which(news)] += 1
        return self._due()

    def _due(self) -> list[Event]:
        while self._next < len(self._news):
            news = self._news[self._next]
            if news is not None:
                if not self._heard[news]:
                    break
                self._heard[news] -= 1
            self._next += 1
        events: list[Event] = []
        while self._asked and self._asked[0][0] <= self._next:
            events.append(self._asked.popleft()[1])
        return events


def _which(news: Report | EndTrial) -> tuple[int, int]:
    """Return whose news it is, with the epoch of a report; 0 stands for an end."""
    return news.trial, news.epoch if isinstance(news, Report) else 0


def _request(event: Event) -> Event:
    """Return an event as the search asked for it, without what the library knew, and from whatever root."""
    if isinstance(event, TrialAsked):
        return msgspec.structs.replace(event, known=None, root="", variant="")
    if isinstance(event, TrialBranched | TrialExtended) and event.known is not None:
        return msgspec.structs.replace(event, known=None)
    return event
