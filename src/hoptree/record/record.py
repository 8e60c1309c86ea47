"""The record of a study: what its journal tells, folded. Results, tables and a driver that goes on begin here."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, final

import msgspec

from hoptree.core.actions import Action, EndTrial, Report, RunUnit
from hoptree.core.engine import Engine
from hoptree.core.errors import StudyChangedError
from hoptree.core.events import (
    Event,
    Metrics,
    TrialAsked,
    TrialBranched,
    TrialExtended,
    TrialStopped,
    UnitFinished,
)
from hoptree.core.plan import Node, Place, Trial
from hoptree.core.settings import Settings
from hoptree.drive import Asks, Watch

if TYPE_CHECKING:
    from hoptree.store.journal import Recorded


class Unit(NamedTuple):
    """One unit of a trial: the node it belongs to, its number, and the partition that it visits."""

    node: Node
    number: int
    partition: int


@final
class Record:
    """The engine as the events have made it, the curves of its trials, and the order in which data was visited."""

    def __init__(self, settings: Settings) -> None:
        self.engine = Engine(settings)
        self.curves: dict[int, dict[int, Metrics]] = {}
        self.now = 0.0
        self._free = settings.order == "free"
        self._begun: dict[int, RunUnit] = {}
        self._visited: dict[tuple[int, int], int] = {}

    def replay(self, entries: Iterable[Recorded]) -> Iterator[tuple[Event, list[Action]]]:
        """Take a journal in, and yield every event with what the engine made of it."""
        for entry in entries:
            actions = self.engine.step(entry.event, entry.now, more=entry.more)
            self.note(entry.event, entry.now, entry.more, actions)
            yield entry.event, actions

    def resume(self, asks: Asks, entries: Iterable[Recorded], watches: Sequence[Watch] = ()) -> list[Event]:
        """Take a journal in, tell searches what it tells, and return what they asked for and is not in it."""
        owed = list(asks.start())
        for event, actions in self.replay(entries):
            for watch in watches:
                watch(event, self.now, False, actions)
            if owed and _request(event) == owed[0]:
                owed.pop(0)
            for action in actions:
                if isinstance(action, Report | EndTrial):
                    owed.extend(asks.tell(action))
        self._refuse_second_thoughts(owed)
        return owed

    def _refuse_second_thoughts(self, owed: Iterable[Event]) -> None:
        """Refuse a search that would begin a trial otherwise than the journal says it did."""
        for event in owed:
            if not isinstance(event, TrialAsked | TrialBranched):
                continue
            known = self.engine.trials.get(event.trial)
            if known is not None and known.history[-1].config != event.config:
                before, now = dict(known.history[-1].config), dict(event.config)
                raise StudyChangedError(
                    f"search: told the same as before, it decides otherwise: trial {event.trial} was begun with "
                    f"{before}, and would be with {now}; one of your own does so when its code has changed, and "
                    "Optuna's samplers may with another version or processor; go on with what began the study, or "
                    "give it another name: what both have in common is found in the store"
                )

    def note(self, event: Event, now: float, more: bool, actions: list[Action]) -> None:
        """Remember what the engine itself does not: as a watch of the drive loop, or of a replay."""
        self.now = now
        if self._free and isinstance(event, UnitFinished):
            run = self._begun.pop(event.run, None)
            if run is not None:
                self._visited[run.node, run.unit] = run.partition
        for action in actions:
            if isinstance(action, Report):
                self._report(action)
            elif self._free and isinstance(action, RunUnit):
                self._begun[action.run] = action

    def _report(self, report: Report) -> None:
        """Enter a report in its curve, by epoch: one that was asked for later may lie before others."""
        curve = self.curves.setdefault(report.trial, {})
        last = next(reversed(curve), 0)
        curve[report.epoch] = dict(report.metrics)
        if report.epoch < last:
            self.curves[report.trial] = dict(sorted(curve.items()))

    @property
    def trials(self) -> list[Trial]:
        """All trials, in the order in which they were asked for."""
        return list(self.engine.trials.values())

    def place(self, trial: Trial) -> Place | None:
        """Return where a trial stands, by the epochs that it has reported; None before the first."""
        if not trial.done:
            return None
        node, unit = self.engine.plan.way(trial, trial.done * self.engine.settings.partitions)[-1]
        return Place(node, unit)

    def units(self, trial: Trial) -> Iterator[Unit]:
        """Yield what a trial consists of up to where it stands, in order."""
        partitions = self.engine.settings.partitions
        unit, rotation = 0, 0
        for node, end in self.engine.plan.way(trial, trial.done * partitions):
            while unit < end:
                if unit % partitions == 0:
                    rotation = node.rotation
                visits = self._visited[node.id, unit] if self._free else (rotation + unit) % partitions
                yield Unit(node, unit, visits)
                unit += 1


@final
class Repeated:
    """Asks again for what was asked for in a journal, by searches and by users: each after all news before it.

    News may come in another order now, and what failed then may go on; what is asked for is the same.
    """

    def __init__(self, settings: Settings, journal: Iterable[Recorded]) -> None:
        self._asked: deque[tuple[int, Event]] = deque()  # after how much news each was asked for
        self._news: list[tuple[int, int]] = []
        for event, actions in Record(settings).replay(journal):
            if isinstance(event, TrialAsked | TrialBranched | TrialExtended | TrialStopped):
                self._asked.append((len(self._news), event))
            self._news += [_which(action) for action in actions if isinstance(action, Report | EndTrial)]
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
        while self._next < len(self._news) and self._heard[self._news[self._next]]:
            self._heard[self._news[self._next]] -= 1
            self._next += 1
        events: list[Event] = []
        while self._asked and self._asked[0][0] <= self._next:
            events.append(self._asked.popleft()[1])
        return events


def _which(news: Report | EndTrial) -> tuple[int, int]:
    """Return whose news it is, with the epoch of a report; 0 stands for an end."""
    return news.trial, news.epoch if isinstance(news, Report) else 0


def _request(event: Event) -> Event:
    """Return an event as the search asked for it, without what the library knew."""
    if isinstance(event, TrialAsked | TrialBranched | TrialExtended) and event.known is not None:
        return msgspec.structs.replace(event, known=None)
    return event
