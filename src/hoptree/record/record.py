"""The record of a study: the state that its journal leads to. Results, tables and a resuming driver start here."""

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
    """One unit of a trial: its node, its number, and the partition that it visits."""

    node: Node
    number: int
    partition: int


@final
class Record:
    """The state of a study after replaying its journal, and the time of the last entry."""

    def __init__(self, settings: Settings, state: StudyState | None = None, now: float = 0.0) -> None:
        self.state = StudyState(settings) if state is None else state
        self.settings = settings
        self.plan = self.state.plan
        self.now = now
        self._free = settings.order == "free"

    def replay(self, entries: Iterable[Recorded]) -> Iterator[Step]:
        """Replay journal entries, and yield every step."""
        reader = FactReader(self.state)
        for recorded in entries:
            step = reader.take(recorded.entry, recorded.now)
            self.now = recorded.now
            yield step

    def read(self, entries: Iterable[Recorded]) -> Record:
        """Replay journal entries, and return self."""
        for _ in self.replay(entries):
            pass
        return self

    def resume(
        self,
        tuner: TrialAsker,
        entries: Iterable[Recorded],
        numbers: TrialNumbers,
        observers: Sequence[Observer] = (),
    ) -> list[Event]:
        """Replay a journal and pass its reports to the searches; return their requests that are not in it.

        ``numbers`` assigns the numbers of the searches' trials.
        """
        for step in self.replay(entries):
            for observe in observers:
                observe(step)
        numbers.recall(self.state.trials.values())
        pending = list(tuner.start())
        bare = [_request(event) for event in pending]
        for part in self.state.dialogue:
            if isinstance(part, Report | EndTrial):
                new = tuner.tell(part)
                pending.extend(new)
                bare.extend(map(_request, new))
            elif pending and not isinstance(part, TrialRetried):
                with suppress(ValueError):  # not in order: a wider search makes its additions later
                    place = bare.index(_request(part))
                    del pending[place], bare[place]
        self._check_same_decisions(pending)
        return pending

    def _check_same_decisions(self, pending: Iterable[Event]) -> None:
        """Raise an error if a search would start a trial with another config than the journal has."""
        for event in pending:
            if not isinstance(event, TrialAsked | TrialBranched):
                continue
            known = self.by_number.get(event.trial)
            if known is not None and known.history[-1].config != event.config:
                before, now = dict(known.history[-1].config), dict(event.config)
                raise StudyChangedError(
                    f"search: given the same reports, it now proposes another config for trial {event.trial}: "
                    f"before {before}, now {now}. A search of your own does so if its code has changed; "
                    "Optuna's samplers may with another version or processor. Resume with what started the study, "
                    "or give it another name: work that both have in common is reused from the store"
                )

    def note(self, step: Step) -> None:
        """Note the time: an observer of the drive loop, in which the engine changes the state itself."""
        self.now = step.now

    @property
    def by_number(self) -> dict[int, Trial]:
        """All trials by number, in the order in which they were requested."""
        return self.state.trials

    @property
    def trials(self) -> list[Trial]:
        """All trials, in the order in which they were requested."""
        return list(self.state.trials.values())

    @property
    def live(self) -> int:
        """How many trials have not ended."""
        return self.state.live

    def place(self, trial: Trial) -> Place | None:
        """Return the place of a trial's last report; None before the first."""
        if not trial.done:
            return None
        node, unit = self.plan.path_with_ends(trial, trial.done * self.settings.partitions)[-1]
        return Place(node, unit)

    def units(self, trial: Trial) -> Iterator[TrialUnit]:
        """Yield the units of a trial up to its last report, in order."""
        partitions = self.settings.partitions
        unit, rotation = 0, 0
        for node, end in self.plan.path_with_ends(trial, trial.done * partitions):
            while unit < end:
                if unit % partitions == 0:
                    rotation = node.rotation
                visits = self.state.visits[node.id, unit] if self._free else (rotation + unit) % partitions
                yield TrialUnit(node, unit, visits)
                unit += 1


@final
class ReplayedRequests:
    """Makes the requests of a journal again, by searches and by users: each after all messages that came before it.

    Messages may come in another order now, and trials that failed then may not fail; the requests are the same.
    """

    def __init__(self, settings: Settings, journal: Iterable[Recorded]) -> None:
        self._requests: deque[tuple[int, Event]] = deque()  # requests, each with the number of messages before it
        self._messages: list[tuple[int, int] | None] = []
        for part in Record(settings).read(journal).state.dialogue:
            if isinstance(part, Report | EndTrial):
                self._messages.append(_message_key(part))
            elif isinstance(part, TrialRetried):  # the trial may not fail now, so do not wait for its failure
                ends = [place for place, message in enumerate(self._messages) if message == (part.trial, 0)]
                if ends:
                    self._messages[ends[-1]] = None
            else:
                self._requests.append((len(self._messages), part))
        self._received: Counter[tuple[int, int]] = Counter()
        self._next = 0  # messages before this index have come again

    def start(self) -> Sequence[Event]:
        """Return the first requests."""
        return self._due()

    def tell(self, news: Report | EndTrial) -> Sequence[Event]:
        """Note a message, and return the requests that came after it and after all messages before it."""
        self._received[_message_key(news)] += 1
        return self._due()

    def _due(self) -> list[Event]:
        while self._next < len(self._messages):
            message = self._messages[self._next]
            if message is not None:
                if not self._received[message]:
                    break
                self._received[message] -= 1
            self._next += 1
        events: list[Event] = []
        while self._requests and self._requests[0][0] <= self._next:
            events.append(self._requests.popleft()[1])
        return events


def _message_key(message: Report | EndTrial) -> tuple[int, int]:
    """Return the trial of a message, with the epoch of a report; 0 stands for the end of the trial."""
    return message.trial, message.epoch if isinstance(message, Report) else 0


def _request(event: Event) -> Event:
    """Return an event as the search made it: without stored results, root and variant."""
    if isinstance(event, TrialAsked):
        return msgspec.structs.replace(event, known=None, root="", variant="")
    if isinstance(event, TrialBranched | TrialExtended) and event.known is not None:
        return msgspec.structs.replace(event, known=None)
    return event
