"""Every entry of a journal comes back exactly as it was."""

from __future__ import annotations

import math
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoptree.core.costs import CostFormula, Feature
from hoptree.core.events import KnownResults, TrialAsked, TrialBranched, TrialStopped, WorkerJoined
from hoptree.core.facts import (
    Decided,
    Entry,
    EventFact,
    FactPlace,
    RunFailedFact,
    SaveDecided,
    StateEvaluatedFact,
    UnitFinishedFact,
)
from hoptree.core.lineage import config_items
from hoptree.core.metrics import spelled, unspelled
from hoptree.store import EventError, decode, encode
from tests.core.strategies import numeric

COUNTS = st.integers(0, 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FINITE = st.floats(-1e300, 1e300)  # schedules refuse numbers whose sums would overflow
VALUES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | FINITE | TEXTS | numeric(FINITE) | numeric()
CONFIGS = st.dictionaries(TEXTS.filter(bool), VALUES, min_size=1, max_size=4).map(config_items)

SPELLED = st.dictionaries(TEXTS, FINITE | st.sampled_from(["nan", "inf", "-inf"]), max_size=4)
KNOWN_REPORTS = st.lists(st.tuples(COUNTS, SPELLED), max_size=3).map(tuple)

FEATURES = st.builds(
    Feature, TEXTS, st.sampled_from(["log", "linear", "is"]), FINITE, FINITE, TEXTS
)  # array-like: by position
TERMS = st.lists(st.tuples(FINITE, st.lists(COUNTS, max_size=2).map(tuple)), max_size=3).map(tuple)

SPECIAL = {
    "at": st.builds(FactPlace, TEXTS, COUNTS, TEXTS),
    "formula": st.builds(CostFormula, FINITE, st.lists(FEATURES, max_size=3).map(tuple), TERMS, FINITE, FINITE),
    "config": CONFIGS,
    "metrics": SPELLED,
    "partitions": st.lists(COUNTS, max_size=4).map(tuple),
    "fault": st.sampled_from(["user", "system"]),
    "ending": st.sampled_from(["complete", "stopped", "failed"]),
    "known": st.none() | st.builds(KnownResults, states=st.lists(COUNTS).map(tuple), reports=KNOWN_REPORTS),
    "crew": st.lists(TEXTS, max_size=3).map(tuple),
    "layout": st.sampled_from(["single", "data"]),
    "plan": st.dictionaries(TEXTS, FINITE | TEXTS | st.lists(COUNTS, max_size=2), max_size=3),
    "asked_by": st.none() | st.tuples(st.integers(-1, 9), COUNTS),
}
PLAIN: dict[Any, st.SearchStrategy[Any]] = {int: COUNTS, str: TEXTS, bool: st.booleans(), float: FINITE}


def facts_of(kind: Any) -> st.SearchStrategy[Any]:
    fields: Any = msgspec.inspect.type_info(kind).fields  # type: ignore[attr-defined]
    types: dict[Any, Any] = {
        msgspec.inspect.IntType: int,
        msgspec.inspect.StrType: str,
        msgspec.inspect.BoolType: bool,
        msgspec.inspect.FloatType: float,
    }
    strategies = {
        field.name: PLAIN[types[type(field.type)]] if type(field.type) in types else SPECIAL[field.name]
        for field in fields
    }
    return st.builds(kind, **strategies)


EVENTS = {kind: facts_of(kind) for kind in get_args(EventFact)}
DECIDED = {kind: facts_of(kind) for kind in get_args(Decided)}
ENTRIES = st.builds(
    Entry, st.one_of(*EVENTS.values()), st.lists(st.one_of(*DECIDED.values()), max_size=4).map(tuple)
)


def comes_back(entry: Entry) -> None:
    back = decode(encode(entry))
    assert back == entry
    assert repr(back) == repr(entry)  # 1 is not 1.0 and not True, a tuple is no list


@given(ENTRIES)
def test_every_entry_comes_back_exactly(entry: Entry) -> None:
    comes_back(entry)


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_everything_that_happens_comes_back_exactly(kind: Any, data: st.DataObject) -> None:
    comes_back(Entry(data.draw(EVENTS[kind])))


@pytest.mark.parametrize("kind", DECIDED, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_everything_that_is_decided_comes_back_exactly(kind: Any, data: st.DataObject) -> None:
    comes_back(Entry(TrialStopped(0), (data.draw(DECIDED[kind]),)))


def test_every_fact_has_a_tag_of_its_own_that_is_no_name_of_a_class() -> None:
    tags = [kind.__struct_config__.tag for kind in (*EVENTS, *DECIDED)]
    assert len(set(tags)) == len(tags)
    assert all(tag == tag.lower() for tag in tags)


def test_an_entry_is_short_and_says_what_it_is_about() -> None:
    finished = UnitFinishedFact(3, "w0", FactPlace("ab12", 5), 1, seconds=0.25)
    save = SaveDecided(FactPlace("ab12", 6), keep=True)
    assert encode(Entry(finished, (save,))) == (
        b'{"event":{"fact":"unit-finished","run":3,"worker":"w0","at":["ab12",5,""],"partition":1,"seconds":0.25},'
        b'"decided":[{"fact":"save-decided","at":["ab12",6,""],"keep":true}]}'
    )


@given(st.dictionaries(TEXTS, st.floats() | st.just(1.5), max_size=4))
def test_metrics_of_any_model_are_spelled_and_come_back(metrics: dict[str, float]) -> None:
    back = decode(encode(Entry(StateEvaluatedFact(1, "w", FactPlace("ab12", 2), spelled(metrics)))))
    assert isinstance(back.event, StateEvaluatedFact)
    assert repr(unspelled(back.event.metrics)) == repr(metrics)


def test_metrics_of_a_model_that_diverged_come_back() -> None:
    metrics = {"loss": math.nan, "up": math.inf, "down": -math.inf, "ok": 1.5}
    back = decode(encode(Entry(StateEvaluatedFact(1, "w", FactPlace("ab12", 2), spelled(metrics)))))
    assert isinstance(back.event, StateEvaluatedFact)
    assert repr(unspelled(back.event.metrics)) == "{'loss': nan, 'up': inf, 'down': -inf, 'ok': 1.5}"


@pytest.mark.parametrize(
    "event",
    [
        WorkerJoined("w", (0,), math.inf),
        TrialAsked(1, (("lr", math.nan), ("x", None)), 3),
        TrialBranched(1, 0, 2, (("lr", -math.inf),), 3),
        RunFailedFact(1, "w", FactPlace("ab12", 2), "\ud800", "user"),
        UnitFinishedFact(1, "w", FactPlace("ab12", 2), 0, seconds=math.nan),
        TrialAsked(1, (("lr", object()),), 3),  # type: ignore[arg-type]
    ],
)
def test_an_entry_that_would_not_come_back_is_refused(event: Any) -> None:
    with pytest.raises(EventError, match="expected"):
        encode(Entry(event))


def test_a_decision_that_would_not_come_back_is_refused() -> None:
    with pytest.raises(EventError, match="expected"):
        encode(Entry(TrialStopped(0), (SaveDecided(FactPlace("ab12", 2), math.inf),)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"null",
        b'{"event":{"fact":"nothing"}}',
        b'{"event":{"fact":"trial-stopped"}}',
        b'{"event":{"fact":"trial-stopped","trial":1},"decided":[{"fact":"nothing"}]}',
        b'{"event":{"type":"TrialStopped","trial":1}}',
    ],
)
def test_a_value_that_is_not_an_entry_is_refused(data: bytes) -> None:
    with pytest.raises(EventError, match="not an entry"):
        decode(data)
