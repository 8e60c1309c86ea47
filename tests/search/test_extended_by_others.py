"""Users may extend a trial while a search runs it: the decisions of the search stay the same."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hoptree.core.actions import EndTrial, Report
from hoptree.core.lineage import Values
from hoptree.forecast.simulation import simulate
from hoptree.search import PBT, Hyperband, Procedure, SuccessiveHalving
from hoptree.search.protocol import Decision, Extend, Search
from hoptree.simulator import Cluster, Workload
from hoptree.simulator.workload import Landscape
from tests.search.landscape import LOSS, SPACE, loss


class Meddling:
    """Wraps a search; a user extends a trial at its first report, or when it first ends."""

    def __init__(self, search: Search, trial: int, until: int, when: type[Report] | type[EndTrial]) -> None:
        self._search = search
        self._others = [Extend(trial, until)] if until else []
        self._at = trial
        self._when = when
        self.decisions: list[Decision] = []

    def start(self) -> Sequence[Decision]:
        return self._note(self._search.start())

    def tell(self, update: Report | EndTrial) -> Sequence[Decision]:
        own = self._note(self._search.tell(update))
        if not self._others or update.trial != self._at or not isinstance(update, self._when):
            return own
        return [self._others.pop(), *own]

    def _note(self, decisions: Sequence[Decision] | None) -> list[Decision]:
        found = list(decisions or ())
        self.decisions += found
        return found


def decided(procedure: Procedure, trial: int, until: int, when: type[Report] | type[EndTrial]) -> list[Decision]:
    def metrics(values: Values, epoch: int, key: str) -> dict[str, float]:
        return {"loss": loss(values.constants(), epoch, 0)}

    search = Meddling(procedure.search(SPACE, LOSS, 0), trial, until, when)
    simulate(Workload(partitions=2), Cluster(workers=3), search=search, landscape=Landscape(lambda _: 1.0, metrics))
    return search.decisions


@pytest.mark.parametrize("when", [Report, EndTrial])
@pytest.mark.parametrize("until", [2, 3, 5, 12])
@pytest.mark.parametrize(
    "procedure", [SuccessiveHalving(9, 9), Hyperband(9), PBT(4, 6, 2, every=1)], ids=lambda p: type(p).__name__
)
def test_user_requests_do_not_change_the_decisions_of_a_search(
    procedure: Procedure, until: int, when: type[Report] | type[EndTrial]
) -> None:
    alone = decided(procedure, 0, 0, when)
    trials = len([decision for decision in alone if type(decision).__name__ == "Train"])
    for trial in range(0, trials, 2):
        assert sorted(map(repr, decided(procedure, trial, until, when))) == sorted(map(repr, alone))
