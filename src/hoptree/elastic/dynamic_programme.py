"""The cheapest numbers of nodes for all stages of a job, by dynamic programming over time and cost.

A label is a way to reach a stage with a number of nodes: its time, its cost, and the seconds of the minimum charge
that its newest nodes have paid and not yet run. One label dominates another of the same stage and number of nodes
if it is no later, and no dearer even after the other has used up what it has paid ahead. Only labels that none
dominates are continued, so nothing is lost by it; where they are too many, some that lie close together are left
out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias, final

from hoptree.elastic.stage_model import StageModel
from hoptree.elastic.timeline import Terms, done_before

MOST_LABELS = 160
"""How many labels are kept for a stage and a number of nodes."""
FEW_LABELS = 12
"""How many are kept in a first, coarse search, whose best plan limits the cost of the second."""
COMPARED = 8
"""With how many labels one is compared in detail: those just before it, which dominate it most likely."""
TOLERANCE = 1e-9
"""Relative error of sums that are computed in another order."""
SHADOW_PRICES = 24
"""For how many prices of a second the bound on the cost of what follows is computed."""

_Prepaid: TypeAlias = tuple[tuple[int, float], ...]
"""Groups of nodes with the seconds that they have paid ahead, the oldest first."""


class _Chosen(NamedTuple):
    """The nodes of a stage, and of those before it."""

    nodes: int
    before: _Chosen | None


class _Label(NamedTuple):
    time: float
    cost: float
    prepaid: _Prepaid
    chosen: _Chosen | None


class Outcome(NamedTuple):
    """A number of nodes for each stage, with the time and the cost that are expected."""

    seconds: float
    cost: float
    counts: tuple[int, ...]


@final
class DynamicProgramme:
    """Plans for one job, from the numbers of nodes that are to be tried, in rising order."""

    def __init__(self, model: StageModel, terms: Terms, counts: Sequence[int], *, running: int = 0) -> None:
        self._model = model
        self._terms = terms
        self._counts = sorted({*counts, running} - {0})
        self._running = running
        self._most = MOST_LABELS
        self._stages = range(len(model.job.stages))
        quickest = [min(model.seconds(index, count) for count in self._counts) for index in self._stages]
        # A label at the end of a stage has the seconds until the next one behind it.
        self._sync_after = [model.job.sync * max(0, len(self._stages) - 2 - n) for n in self._stages]
        self._time_after = [sum(quickest[n + 1 :]) + self._sync_after[n] for n in self._stages]

    def cheapest(self, deadline: float, budget: float, limits: Sequence[int]) -> Outcome | None:
        """Return the cheapest plan that ends by the deadline and within the budget; None: there is none.

        It is sought with each of the ``limits`` on labels: what a coarse search finds limits the cost of the next.
        """
        best: Outcome | None = None
        for most in limits:
            found = self.outcomes(deadline=deadline, budget=budget * (1 + TOLERANCE), most=most)
            if found and (best is None or found[-1].cost < best.cost):
                best = found[-1]
                budget = min(budget, best.cost)
        return best

    def outcomes(
        self, *, deadline: float = math.inf, budget: float = math.inf, most: int = MOST_LABELS
    ) -> list[Outcome]:
        """Return the plans that end by the deadline and within the budget and are not dominated, fastest first."""
        self._most = most
        last = len(self._stages) - 1
        bounds = self._bounds(deadline)
        labels = self._first()
        for index in self._stages:
            ended: dict[int, list[_Label]] = {}
            for count, ready in labels.items():
                after = (self._train(label, index, count) for label in ready)
                ended[count] = self._prune(
                    label
                    for label in after
                    if label.time + self._time_after[index] <= deadline
                    and label.cost
                    - self._paid_ahead(label)
                    + max(least + price * label.time for price, least in bounds[index])
                    <= budget
                )
            labels = self._scaled(ended) if index < last else ended
        final_labels = self._prune(
            _Label(each.time, each.cost, (), each.chosen) for group in labels.values() for each in group
        )
        return [Outcome(each.time, each.cost, _counts(each.chosen)) for each in final_labels]

    def _bounds(self, deadline: float) -> list[list[tuple[float, float]]]:
        """Return bounds on the cost of what follows each stage, as pairs: a price of a second, and a constant.

        If time cost that price, a plan that is in time would pay at least the constant and the price of the time
        that has passed: a Lagrangian relaxation of the deadline, in which each stage is chosen by itself.
        """
        after: list[list[tuple[float, float]]] = [[(0.0, 0.0)] for _ in self._stages]
        figures = [
            [(self._model.seconds(index, count), self._stage_cost(index, count)) for count in self._counts]
            for index in self._stages
        ]
        highest = self._terms.second * self._counts[-1]
        prices = [0.0]
        if math.isfinite(deadline) and highest > 0:
            prices += [highest * 0.7**number for number in range(SHADOW_PRICES)]
        for index in self._stages:
            sync = self._sync_after[index]
            after[index] = []
            for price in prices:
                rest = sum(
                    min(cost + price * seconds for seconds, cost in figures[later])
                    for later in self._stages[index + 1 :]
                )
                after[index].append((price, rest + price * (sync - deadline) if price else rest))
        return after

    def _first(self) -> dict[int, list[_Label]]:
        """Return the ways to begin the first stage."""
        labels: dict[int, list[_Label]] = {}
        start = _Label(0.0, self._running * self._terms.second * self._terms.tail, (), None)
        for count in self._counts:
            if count <= self._running:
                labels[count] = [start]
            else:
                waited = self._advance(start, self._running, self._terms.lead)
                labels[count] = [self._add(waited, count - self._running)]
        return labels

    def _train(self, label: _Label, index: int, count: int) -> _Label:
        """Return the label at the end of a stage."""
        seconds = self._model.seconds(index, count)
        if index == 0 and count > self._running:
            seconds *= 1.0 - done_before(self._terms.lead, self._running, self._model, self._terms)
        sync = self._model.job.sync if index + 1 < len(self._model.job.stages) else 0.0
        time, cost, prepaid, chosen = self._advance(label, count, seconds + sync)
        if self._terms.by_function:
            cost += self._terms.busy_second * self._model.busy(index, count)
        return _Label(time, cost, prepaid, _Chosen(count, chosen))

    def _scaled(self, ended: dict[int, list[_Label]]) -> dict[int, list[_Label]]:
        """Return the ways to begin the next stage, with the same, fewer or more nodes."""
        found = {count: list(labels) for count, labels in ended.items()}
        fewer: list[_Label] = []
        for count, above in zip(reversed(self._counts), [0, *reversed(self._counts)], strict=False):
            fewer = [_drop(label, above, above - count) for label in fewer]
            found.setdefault(count, []).extend(fewer)
            fewer = self._prune([*fewer, *ended.get(count, [])])
        more: list[_Label] = []
        below = 0
        for count in self._counts:
            more = [self._add(label, count - below) for label in more]
            found.setdefault(count, []).extend(more)
            more = self._prune([*more, *(self._wait(label, count) for label in ended.get(count, []))])
            below = count
        return {count: self._prune(labels) for count, labels in found.items() if labels}

    def _wait(self, label: _Label, count: int) -> _Label:
        """Return the label when nodes that are added have come."""
        lead = self._terms.lead
        return self._advance(label, count, max(0.0, lead - label.time) if self._terms.ahead else lead)

    def _advance(self, label: _Label, count: int, seconds: float) -> _Label:
        """Return the label after some seconds with the same nodes."""
        time, cost, prepaid, chosen = label
        paid = count * seconds
        if prepaid:
            paid -= sum(size * min(left, seconds) for size, left in prepaid)
            prepaid = tuple((size, left - seconds) for size, left in prepaid if left > seconds)
        return _Label(time + seconds, cost + self._terms.second * paid, prepaid, chosen)

    def _add(self, label: _Label, count: int) -> _Label:
        """Return the label with more nodes, which have started already."""
        terms = self._terms
        cost = label.cost + count * (terms.once + terms.second * max(terms.minimum, terms.start))
        prepaid = label.prepaid
        left = terms.minimum - terms.start
        if left > 0:
            if prepaid and prepaid[-1][1] == left:
                count, prepaid = count + prepaid[-1][0], prepaid[:-1]
            prepaid = (*prepaid, (count, left))
        return _Label(label.time, cost, prepaid, label.chosen)

    def _prune(self, labels: Iterable[_Label]) -> list[_Label]:
        """Return the labels that none dominates, by time."""
        kept: list[_Label] = []
        least = math.inf
        for label in sorted(labels):
            if least <= label.cost and not (label.prepaid and self._needed(label, kept, least)):
                continue
            least = min(least, label.cost)
            kept.append(label)
        if len(kept) > self._most:
            step = (len(kept) - 1) / (self._most - 1)
            kept = [kept[round(number * step)] for number in range(self._most)]
        return kept

    def _needed(self, label: _Label, kept: list[_Label], least: float) -> bool:
        """Say whether what a label has paid ahead may make up for its higher cost."""
        if least + self._paid_ahead(label) <= label.cost:
            return False
        second = self._terms.second
        return not any(
            other.cost <= label.cost and other.cost + second * _deficit(other.prepaid, label.prepaid) <= label.cost
            for other in kept[: -COMPARED - 1 : -1]
        )

    def _paid_ahead(self, label: _Label) -> float:
        return self._terms.second * sum(size * left for size, left in label.prepaid)

    def _stage_cost(self, index: int, count: int) -> float:
        if self._terms.by_function:
            return self._terms.busy_second * self._model.busy(index, count)
        return self._terms.second * count * self._model.seconds(index, count)


def _drop(label: _Label, have: int, count: int) -> _Label:
    """Return the label without its oldest nodes, of the ``have`` that it has."""
    prepaid = label.prepaid
    if not prepaid:
        return label
    count -= have - sum(size for size, _ in prepaid)  # those that have nothing paid ahead are older
    while count > 0:
        size, left = prepaid[0]
        taken = min(size, count)
        prepaid = ((size - taken, left), *prepaid[1:]) if taken < size else prepaid[1:]
        count -= taken
    return label._replace(prepaid=prepaid)


def _deficit(prepaid: _Prepaid, others: _Prepaid) -> float:
    """Return how much less nodes have paid ahead than others, node by node, those with the most first."""
    total, position, used = 0.0, len(prepaid) - 1, 0
    for size, left in reversed(others):
        open_size = size
        while open_size > 0:
            if position < 0:
                total += open_size * left
                break
            own_size, own_left = prepaid[position]
            taken = min(open_size, own_size - used)
            total += taken * max(0.0, left - own_left)
            open_size -= taken
            used += taken
            if used == own_size:
                position, used = position - 1, 0
    return total


def _counts(chosen: _Chosen | None) -> tuple[int, ...]:
    found: list[int] = []
    while chosen is not None:
        found.append(chosen.nodes)
        chosen = chosen.before
    return tuple(reversed(found))
