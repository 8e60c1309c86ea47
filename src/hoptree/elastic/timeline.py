"""What a number of nodes for each stage takes and costs: nodes start, train, and are released after each stage."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, final

import msgspec

from hoptree.elastic.billing import HOUR
from hoptree.elastic.instance import Instance
from hoptree.elastic.stage_model import StageModel

Seconds: TypeAlias = Any
"""A number, or a numpy array with a number for each sample: all figures of a timeline are computed for both."""


class NodeTimeline(msgspec.Struct, frozen=True):
    """When each stage begins and ends, and the cost of all nodes; seconds from the start of the run.

    ``lives`` are groups of nodes with the time at which they start and that at which they are released.
    """

    begins: tuple[Seconds, ...]
    ends: tuple[Seconds, ...]
    lives: tuple[tuple[int, Seconds, Seconds], ...]
    cost: Seconds

    @property
    def seconds(self) -> Seconds:
        """When the last stage ends."""
        return self.ends[-1]


@final
class Terms:
    """The terms of a provider as the planner needs them.

    If ``ahead``, nodes are requested so early that they are ready when the stage that needs them begins. Otherwise
    they are requested when the stage before has ended, and all wait for them.
    """

    def __init__(self, instance: Instance, data_gb: float, *, ahead: bool) -> None:
        self.ahead = ahead
        self.by_function = instance.billing == "function"
        self.provision = instance.provision or 0.0
        self.start = instance.start or 0.0
        # Per function, a node costs nothing while it does not train.
        self.second = 0.0 if self.by_function else instance.price / HOUR
        self.busy_second = instance.price / HOUR / instance.devices if self.by_function else 0.0
        self.tail = 0.0 if self.by_function else instance.idle_tail
        # The idle tail counts towards the minimum.
        self.minimum = 0.0 if self.by_function else max(0.0, instance.minimum - instance.idle_tail)
        self.once = self.second * self.tail + data_gb * instance.data_price  # for each node that starts

    @property
    def lead(self) -> float:
        """The seconds from the request for a node until it can train."""
        return self.provision + self.start


class StageTime(msgspec.Struct, frozen=True):
    """How long a stage takes, and for how long devices train in it, summed over the devices.

    ``planned`` is how long it was expected to take, if its ``seconds`` are samples.
    """

    seconds: Seconds
    busy: Seconds
    planned: float | None = None


def timeline(
    counts: Sequence[int],
    times: Sequence[StageTime],
    model: StageModel,
    terms: Terms,
    *,
    running: int = 0,
    longer: Callable[[Any, Any], Any] = max,
) -> NodeTimeline:
    """Return the timeline of a number of nodes for each stage, with the ``times`` of the stages on them.

    ``running`` nodes are there at the beginning, and are paid past their minimum. The oldest nodes are released
    first. Nodes that are requested ahead come when the stage before was expected to end. For times that are arrays,
    ``longer`` is ``numpy.maximum``.
    """
    begins: list[Seconds] = []
    ends: list[Seconds] = []
    # The minimum of running nodes is paid already: it is taken off here.
    groups: deque[tuple[int, Seconds]] = deque([(running, -terms.minimum)] if running else [])
    cost: Seconds = running * terms.second * (terms.tail - terms.minimum)
    lives: list[tuple[int, Seconds, Seconds]] = []
    now: Seconds = 0.0
    expected: Seconds = 0.0  # when the stage was expected to begin, when the one before began
    have = running
    for index, (count, time) in enumerate(zip(counts, times, strict=True)):
        seconds, begin, part = time.seconds, None, 0.0
        if count > have:
            come = longer(expected, terms.lead) if terms.ahead else now + terms.lead
            groups.append((count - have, come - terms.start))
            now = longer(now, come)
            cost = cost + (count - have) * terms.once
            if index == 0:
                part = done_before(terms.lead, have, model, terms)
                if part > 0:
                    begin, seconds = 0.0, seconds * (1.0 - part)
        else:
            lives += _release(groups, have - count, now)
        have = count
        begins.append(now if begin is None else begin)
        planned = seconds if time.planned is None else time.planned * (1.0 - part)
        expected = now + planned + model.job.sync
        now = now + seconds
        ends.append(now)
        cost = cost + terms.busy_second * time.busy
        if index + 1 < len(counts):
            now = now + model.job.sync
    lives += _release(groups, have, now)
    for size, started, ended in lives:
        cost = cost + size * terms.second * longer(ended - started, terms.minimum)
    return NodeTimeline(tuple(begins), tuple(ends), tuple(lives), cost)


def expected_timeline(counts: Sequence[int], model: StageModel, terms: Terms, *, running: int = 0) -> NodeTimeline:
    """Return the timeline of a number of nodes for each stage with the times that are expected."""
    times = [StageTime(model.seconds(index, count), model.busy(index, count)) for index, count in enumerate(counts)]
    return timeline(counts, times, model, terms, running=running)


def done_before(seconds: float, running: int, model: StageModel, terms: Terms) -> float:
    """Return which part of the first stage the nodes that are running have trained after some seconds."""
    if not (running and terms.ahead and model.job.divisible):
        return 0.0  # trials wait for their devices
    alone = model.seconds(0, running)
    return min(1.0, seconds / alone) if alone > 0 else 1.0


def _release(groups: deque[tuple[int, Seconds]], count: int, now: Seconds) -> list[tuple[int, Seconds, Seconds]]:
    """Take the oldest nodes out of the groups, and return their lives."""
    lives: list[tuple[int, Seconds, Seconds]] = []
    while count > 0:
        size, started = groups.popleft()
        taken = min(size, count)
        if taken < size:
            groups.appendleft((size - taken, started))
        lives.append((taken, started, now))
        count -= taken
    return lives
