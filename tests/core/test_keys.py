"""Keys: different values have different encodings, and nothing but values has a part in them."""

from __future__ import annotations

import enum
import json
import math
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.core import keys
from hoptree.core.engine import Engine
from hoptree.core.errors import WorkloadError
from hoptree.core.lineage import branched, config_items, history, segments
from hoptree.core.plan import Plan
from hoptree.core.schedules import Config, constant, multistep
from hoptree.core.settings import Settings
from tests.core.strategies import configs

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-3, 3).map(float),
    st.floats(allow_nan=False),
    TEXT,
    st.binary(max_size=6),
)
ENCODABLE = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=8
)


def typed(value: Any) -> Any:
    """Return what is equal for values that are to have the same encoding, found in another way."""
    match value:
        case list() | tuple():
            return "sequence", tuple(map(typed, value))
        case dict():
            return "mapping", frozenset((name, typed(item)) for name, item in value.items())
        case _:
            return type(value).__name__, value


@settings(max_examples=300, deadline=None)
@given(ENCODABLE, ENCODABLE)
def test_encodings_are_equal_for_equal_values_of_equal_types_and_for_these_only(one: Any, two: Any):
    assert (keys.encode(one) == keys.encode(two)) == (typed(one) == typed(two))


@settings(max_examples=200, deadline=None)
@given(st.lists(ENCODABLE, max_size=3), st.lists(ENCODABLE, max_size=3))
def test_no_encoding_is_a_prefix_of_another(one: list[Any], two: list[Any]):
    """So parts that stand behind each other can be told apart."""
    some = [keys.encode(value) for value in (*one, *two)]
    assert all(a == b or not b.startswith(a) for a in some for b in some)
    assert (keys.identity("example", *one) == keys.identity("example", *two)) == (typed(one) == typed(two))


@pytest.mark.parametrize(
    "values",
    [
        (1, 1.0, True, "1", b"1", [1], {"1": 1}),
        (0, 0.0, False, None, "", b"", [], {}),
        (("a", "bc"), ("ab", "c"), ("abc",), ("a", ("bc",)), (("a",), "bc")),
        ({"a": 1, "b": 2}, [["a", 1], ["b", 2]], {"a": {"b": 2}}),
        (255, 256, -1, -256, 2**64, -(2**64)),
        (history({"lr": 0.1})[0], history({"lr": constant(0.1)})[0], [0, {"lr": 0.1}], constant(0.1), 0.1),
    ],
)
def test_similar_values_have_different_encodings(values: tuple[Any, ...]):
    assert len({keys.encode(value) for value in values}) == len(values)


def test_purposes_have_keys_of_their_own():
    purposes = ["a", "b", "a/b"]
    assert len({keys.identity(purpose, 1) for purpose in purposes}) == 3
    assert keys.identity("a", "b") != keys.identity("ab")


@given(st.dictionaries(TEXT, SCALARS, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_a_mapping_does_not_count(value: dict[str, Any], random: Any):
    items = list(value.items())
    random.shuffle(items)
    assert keys.encode(dict(items)) == keys.encode(value)


def test_zeros_are_one_value_and_lists_count_as_tuples():
    assert keys.encode(-0.0) == keys.encode(0.0)
    assert keys.encode([1, [2]]) == keys.encode((1, (2,)))


@pytest.mark.parametrize("value", [math.nan, [math.nan], {"a": math.nan}, "\ud800", {"\udfff": 1}])
def test_values_without_an_encoding_are_refused(value: Any):
    with pytest.raises(WorkloadError, match="expected"):
        keys.encode(value)


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize("value", [object(), {1: 2}, {1, 2}, 1j, Colour.RED, Settings(2)])
def test_an_object_without_an_encoding_cannot_be_a_key(value: Any):
    with pytest.raises(TypeError, match="a key of"):
        keys.encode(value)


@given(st.text("0123456789abcdef", max_size=32), st.integers(0, 10**9), TEXT)
def test_shortcuts_for_unit_keys_equal_the_general_encoding(lineage: str, unit: int, tree: str):
    assert keys.state_key(lineage, unit, tree) == keys.identity("state", lineage, unit, tree)
    assert keys.unit_seed(lineage, unit) == keys.seed("unit", lineage, unit)
    assert keys.shuffle_seed(unit, unit // 7, unit % 7) == keys.seed("shuffle", unit, unit // 7, unit % 7)
    assert keys.shard_seed(unit, unit // 7, unit % 7) == keys.seed("shard", unit, unit // 7, unit % 7)
    assert 0 <= keys.unit_seed(lineage, unit) < 2**63
    assert 0.0 <= keys.fraction("example", lineage, unit) < 1.0


# --- lineages ---------------------------------------------------------------------------------------------


def test_free_and_strict_order_share_nothing():
    roots = [Engine(Settings(4, order)).plan.root("data") for order in ("strict", "free")]
    assert roots[0].key != roots[1].key
    assert Plan(4).root("data").key == roots[0].key


@settings(max_examples=100, deadline=None)
@given(configs(), configs(), st.sampled_from([1, 4]))
def test_values_have_equal_encodings_exactly_if_they_are_equal(one: Config, two: Config, partitions: int):
    some = [s.values for config in (one, two) for s in segments(history(config), partitions, 4 * partitions)]
    assert all((keys.encode(a) == keys.encode(b)) == (a == b) for a in some for b in some)


def test_histories_differ_by_phases_and_not_by_the_order_of_names():
    one = branched(history({"lr": 0.1, "width": 8}), 2, {"lr": 0.2})
    assert keys.history_key(one) == keys.history_key(branched(history({"width": 8, "lr": 0.1}), 2, {"lr": 0.2}))
    others = [history({"lr": 0.1, "width": 8}), branched(one, 3, {"lr": 0.2}), branched(one, 1, {"lr": 0.2})]
    assert len({keys.history_key(phases) for phases in (one, *others)}) == 4


class Optimizer(enum.StrEnum):
    ADAM = "adam"


def test_keys_do_not_depend_on_the_classes_of_a_users_values():
    mine = config_items({"optimizer": Optimizer.ADAM, "width": Colour.RED})
    assert keys.history_key(history(dict(mine))) == keys.history_key(history({"optimizer": "adam", "width": 1}))
    assert [type(value) for _, value in mine] == [str, int]


def test_a_schedule_never_has_two_zeros():
    plan = Plan(1)
    root = plan.root("data")
    minus = plan.path(history({"lr": multistep(0.0, at=[1], gamma=-1.0)}), root, 2)
    assert plan.path(history({"lr": 0.0}), root, 2) == minus
    assert math.copysign(1.0, multistep(0.0, at=[1], gamma=-1.0)(1)) == 1.0


@pytest.mark.parametrize("config", [{"\ud800": 1}, {"optimizer": "\ud800"}])
def test_text_that_has_no_key_is_refused_before_anything_is_trained(config: Config):
    with pytest.raises(WorkloadError, match="without lone surrogates"):
        config_items(config)


# --- processes --------------------------------------------------------------------------------------------

# Prints all that is pinned but what needs torch, with the classes of records renamed if it is told to.
PROGRAM = """
import json, sys
from hoptree.core import keys, lineage, plan, schedules

if sys.argv[1:] == ["renamed"]:
    for module in (schedules, lineage):
        for name in ("Form", "Schedule", "Piece", "Values", "Phase", "Segment"):
            kind = getattr(module, name, None)
            if kind is not None:
                kind.__name__ = kind.__qualname__ = "Other" + name
                kind.__module__ = "somewhere.else"
    assert repr(lineage.history({"lr": 0.1})[0]).startswith("OtherPhase")

phases = lineage.branched(
    lineage.history({"lr": schedules.multistep(0.1, at=[1.1, 2], gamma=0.1), "optimizer": "adam", "deep": True}),
    3,
    {"lr": schedules.warmup(0.0, 4, schedules.cosine(0.1, period=2)), "width": 8},
)
tree = plan.Plan(4)
nodes = tree.path(phases, tree.root("data"), 24)
print(json.dumps([
    [[node.key, node.rotation, node.state_key(node.start + 1), keys.unit_seed(node.key, 3)] for node in nodes],
    keys.history_key(phases),
    keys.encode({name: 1 for name in {"a", "b", "c", "d"}}).hex(),
]))
"""


def in_a_process(*arguments: str, hash_seed: str = "0") -> Any:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_keys_depend_neither_on_the_process_nor_on_the_names_of_classes():
    reference = in_a_process()
    assert in_a_process(hash_seed="12345") == reference
    assert in_a_process("renamed") == reference
