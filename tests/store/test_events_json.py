"""Every event comes back exactly as it was."""

from __future__ import annotations

import math
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoptree.core.costs import CostFormula, Feature
from hoptree.core.events import (
    Event,
    Known,
    StateEvaluated,
    TrialAsked,
    TrialBranched,
    UnitFailed,
    WorkerJoined,
)
from hoptree.core.lineage import config_items
from hoptree.store import EventError, decode, encode
from tests.core.strategies import numeric

COUNTS = st.integers(0, 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FINITE = st.floats(-1e300, 1e300)  # schedules refuse numbers whose sums would overflow
VALUES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | FINITE | TEXTS | numeric(FINITE) | numeric()
CONFIGS = st.dictionaries(TEXTS.filter(bool), VALUES, min_size=1, max_size=4).map(config_items)

KNOWN_METRICS = st.dictionaries(TEXTS, FINITE | st.sampled_from(["nan", "inf", "-inf"]), max_size=3)
KNOWN_REPORTS = st.lists(st.tuples(COUNTS, KNOWN_METRICS), max_size=3).map(tuple)

FEATURES = st.builds(
    Feature, TEXTS, st.sampled_from(["log", "linear", "is"]), FINITE, FINITE, TEXTS
)  # array-like: by position
TERMS = st.lists(st.tuples(FINITE, st.lists(COUNTS, max_size=2).map(tuple)), max_size=3).map(tuple)

SPECIAL = {
    "formula": st.builds(CostFormula, FINITE, st.lists(FEATURES, max_size=3).map(tuple), TERMS, FINITE, FINITE),
    "config": CONFIGS,
    "metrics": st.dictionaries(TEXTS, st.floats(allow_nan=False), max_size=4),
    "partitions": st.lists(COUNTS, max_size=4).map(tuple),
    "fault": st.sampled_from(["user", "system"]),
    "known": st.none() | st.builds(Known, states=st.lists(COUNTS).map(tuple), reports=KNOWN_REPORTS),
}
PLAIN = {int: COUNTS, str: TEXTS, bool: st.booleans(), float: FINITE}


def events_of(kind: type) -> st.SearchStrategy[Event]:
    fields = msgspec.inspect.type_info(kind).fields
    types = {msgspec.inspect.IntType: int, msgspec.inspect.StrType: str, msgspec.inspect.BoolType: bool}
    strategies = {
        field.name: SPECIAL[field.name] if field.name in SPECIAL else PLAIN[types.get(type(field.type), float)]
        for field in fields
    }
    return st.builds(kind, **strategies)


EVENTS = st.one_of([events_of(kind) for kind in get_args(Event)])


@given(EVENTS)
def test_every_event_comes_back_exactly(event):
    back = decode(encode(event))
    assert back == event
    assert repr(back) == repr(event)  # 1 is not 1.0 and not True, a tuple is no list


def test_metrics_of_a_model_that_diverged_come_back():
    back = decode(encode(StateEvaluated(1, "w", {"loss": math.nan, "up": math.inf, "down": -math.inf, "ok": 1.5})))
    metrics = "{'loss': nan, 'up': inf, 'down': -inf, 'ok': 1.5}"
    assert repr(back) == f"StateEvaluated(run=1, worker='w', metrics={metrics}, seconds=0.0)"


@pytest.mark.parametrize(
    "event",
    [
        WorkerJoined("w", (0,), math.inf),
        TrialAsked(1, (("lr", math.nan), ("x", None)), 3),
        TrialBranched(1, 0, 2, (("lr", -math.inf),), 3),
        UnitFailed(1, "w", "\ud800"),
        TrialAsked(1, (("lr", object()),), 3),
    ],
)
def test_an_event_that_would_not_come_back_is_refused(event):
    with pytest.raises(EventError, match="expected"):
        encode(event)


@pytest.mark.parametrize("data", [b"", b"{}", b'{"type":"Nothing"}', b'{"type":"TrialStopped"}', b"null"])
def test_what_is_no_event_is_refused(data):
    with pytest.raises(EventError, match="not an event"):
        decode(data)
