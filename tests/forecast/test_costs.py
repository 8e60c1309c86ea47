"""Times of units are journaled and learned, and the engine of the next session starts with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hoptree.core.events import CostsLearned
from hoptree.core.facts import StateEvaluatedFact, UnitFinishedFact
from tests.study.test_study import tiny_study


@pytest.mark.slow
def test_times_are_journaled_and_the_next_session_begins_with_costs(tmp_path: Path) -> None:
    from torch import nn

    study = tiny_study(tmp_path, lambda hp: nn.Linear(4, 3))
    before = [trial.fingerprint for trial in study.run(workers=1).trials]
    with study.open_store() as store:
        events = [recorded.entry.event for recorded in store.journal.read(study.name)]
    timed = [event for event in events if isinstance(event, UnitFinishedFact | StateEvaluatedFact)]
    assert timed
    assert all(event.seconds > 0 for event in timed)
    study.extend(0, epochs=3)
    after = study.run(workers=1)
    assert after.trials[0].epochs == 3
    assert [trial.fingerprint for trial in after.trials][1:] == before[1:]
    with study.open_store() as store:
        events = [recorded.entry.event for recorded in store.journal.read(study.name)]
    learned = [event for event in events if isinstance(event, CostsLearned)]
    assert learned
    assert study.results().trials[0].epochs == 3  # the journal can be replayed
    assert all(check.holds for check in study.verify())
