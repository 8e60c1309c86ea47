"""The tables are closed, every state is reachable, and every transition is met in random histories."""

from __future__ import annotations

from random import Random

import pytest

from hoptree.core.errors import InvariantError, TransitionError
from hoptree.core.lineage import history
from hoptree.core.nodes import ActiveLineage, Run
from hoptree.core.plan import Plan
from hoptree.core.transitions import ACTIVE_LINEAGE, RUN, TABLES, TRIAL, mermaid, reachable
from hoptree.core.trial import Trial
from tests.core.driver import Driver
from tests.histories import History

INITIAL = {"run": ["training", "evaluating"], "active lineage": ["idle"], "trial": ["running"]}


@pytest.mark.parametrize("kind", TABLES)
def test_every_state_is_in_its_table_and_can_be_reached(kind: str) -> None:
    table = TABLES[kind]
    assert set.union(*(reachable(table, state) for state in INITIAL[kind])) == set(table)


@pytest.mark.parametrize("kind", TABLES)
def test_a_diagram_shows_every_transition(kind: str) -> None:
    lines = mermaid(TABLES[kind], INITIAL[kind]).splitlines()
    for state, events in TABLES[kind].items():
        for event, target in events.items():
            assert f"    {state} --> {target}: {event}" in lines


def test_random_histories_meet_every_transition(monkeypatch: pytest.MonkeyPatch) -> None:
    met: set[tuple[type, str, str]] = set()
    for kind in (Run, ActiveLineage, Trial):
        change = kind.change

        def noted(item, event, change=change):
            met.add((type(item), item.status, event))
            change(item, event)

        monkeypatch.setattr(kind, "change", noted)
    for seed in range(150):
        History(Random(seed), 60, retries=seed % 2 == 0).run()
    tables = {Run: RUN, ActiveLineage: ACTIVE_LINEAGE, Trial: TRIAL}
    allowed = {(kind, state, event) for kind, table in tables.items() for state in table for event in table[state]}
    assert met <= allowed
    assert allowed - met <= RARE


RARE = {(Run, "cancelling", "worker lost"), (Run, "evaluating", "run cancelled"), (ActiveLineage, "held", "hold")}


def test_an_event_that_the_table_does_not_allow_names_item_state_and_event() -> None:
    lineage = ActiveLineage(Plan(1).root("r"), 0, None)
    lineage.change("remove")
    with pytest.raises(TransitionError, match="lineage at node 0 unit 0: 'start' .* is removed; expected nothing"):
        lineage.change("start")
    run = Run(3, "w", lineage.node, 0, None)
    with pytest.raises(TransitionError, match="run 3 of w: 'unit finished' .* is evaluating; expected evaluated,"):
        run.change("unit finished")
    trial = Trial(0, history({"lr": 0.1}), "", "", 0)
    with pytest.raises(TransitionError, match="trial 0: 'retried' .* is running; expected extended, complete,"):
        trial.change("retried")
    assert (lineage.status, run.status, trial.status) == ("removed", "evaluating", "running")


def test_a_wrong_transition_in_a_step_carries_the_last_steps() -> None:
    driver = Driver(1, ahead=False)
    driver.join("w")
    driver.ask(0, 0.1)
    (run,) = driver.engine.runs.values()
    run.status = "done"
    with pytest.raises(TransitionError) as raised:
        driver.train("w")
    assert "TrialAsked" in raised.value.__notes__[0]


def test_a_status_that_contradicts_the_runs_breaks_an_invariant() -> None:
    driver = Driver(1, ahead=False)
    driver.join("w")
    driver.ask(0, 0.1)
    (run,) = driver.engine.runs.values()
    assert run.lineage is not None
    run.lineage.status = "held"
    with pytest.raises(InvariantError, match="was held, against transitions.py"):
        driver.join("v")
