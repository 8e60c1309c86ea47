"""Descriptions: plain data that is equal for equal spaces and shows the differences."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings

import hoptree as ht
from hoptree.search.space import changes, describe
from tests.search.spaces import spaces

SPACE = {
    "lr": ht.choice(0.1, ht.multistep(ht.log(1e-4, 0.1), at=[4, ht.integer(5, 9)], gamma=0.5)),
    "optimizer": ht.choice({"name": "sgd", "momentum": ht.uniform(0, 1, step=0.1)}, {"name": "adam"}),
    "width": ht.integer(8, 64, log=True),
}


@settings(max_examples=100, deadline=None)
@given(spaces())
def test_a_description_survives_json_and_is_equal_to_itself(space: dict[str, Any]):
    kept = json.loads(json.dumps(describe(space), sort_keys=True))
    assert kept == describe(dict(space))
    assert changes(kept, describe(space)) == []


def test_everything_that_is_left_open_is_described():
    assert describe(SPACE)["names"] == [
        ["lr", "choice of 2"],
        ["lr[0]", "0.1"],
        ["lr[1]", "multistep(...)"],
        ["lr[1].init", "log(0.0001, 0.1)"],
        ["lr[1].at", "list of 2"],
        ["lr[1].at[0]", "4"],
        ["lr[1].at[1]", "integer(5, 9)"],
        ["lr[1].gamma", "0.5"],
        ["optimizer", "choice of 2"],
        ["optimizer[0]", "part of 2"],
        ["optimizer[0].name", "'sgd'"],
        ["optimizer[0].momentum", "uniform(0.0, 1.0, step=0.1)"],
        ["optimizer[1]", "part of 1"],
        ["optimizer[1].name", "'adam'"],
        ["width", "integer(8, 64, log=True)"],
    ]


def differences(before: Any, after: Any) -> list[str]:
    return changes(json.loads(json.dumps(describe(before))), describe(after))


def test_differences_are_reported_by_name():
    assert differences({"lr": ht.log(1e-4, 0.1), "width": 8}, {"lr": ht.log(1e-4, 1), "depth": 2}) == [
        "lr: was log(0.0001, 0.1), is log(0.0001, 1.0)",
        "depth: is new",
        "width: was removed",
    ]
    assert differences({"n": ht.choice(1, 2)}, {"n": ht.choice(1.0, 2)}) == ["n[0]: was 1, is 1.0"]
    assert differences({"lr": ht.uniform(0, 1)}, {"lr": ht.uniform(0.0, 1.0)}) == []
    assert differences({"a": 1, "b": 2}, {"b": 2, "a": 1}) == ["b: the order of names has changed"]
    assert differences(
        SPACE, SPACE | {"optimizer": ht.choice({"name": "sgd", "momentum": 0.9}, {"name": "adam"})}
    ) == ["optimizer[0].momentum: was uniform(0.0, 1.0, step=0.1), is 0.9"]


def below(limit: int) -> Any:
    return lambda c: c["width"] < limit


def test_changed_conditions_are_reported():
    space = {"width": ht.integer(1, 9)}
    assert differences(ht.where(space, below(3)), ht.where(space, below(3))) == []
    (line,) = differences(ht.where(space, below(3)), ht.where(space, below(4)))
    assert line.startswith("where: the code of the condition below.<locals>.<lambda> differs")
    assert (
        len(differences(ht.where(space, lambda c: c["width"] < 3), ht.where(space, lambda c: c["width"] > 3))) == 1
    )
    assert (
        differences(
            ht.where(space, lambda c: c["width"] in {1, 2}), ht.where(space, lambda c: c["width"] in {1, 2})
        )
        == []
    )
    assert differences(space, ht.where(space, below(3))) == ["where: was 0 conditions, is 1"]
    nested = [{"net": ht.where(space, below(limit))} for limit in (3, 4)]
    assert differences(*nested)[0].startswith("net: the code of the condition below")


def test_another_python_has_other_bytes_for_the_same_condition():
    space = ht.where({"width": ht.integer(1, 9)}, below(3))
    older = describe(space)
    older["where"] = [[path, name, "3.9:abc"] for path, name, _ in older["where"]]
    assert changes(older, describe(space)) == []


def test_objects_that_are_called_have_no_code_to_compare():
    class Narrow:
        def __call__(self, config: Any) -> bool:
            return True

    space = ht.where({"width": ht.integer(1, 9)}, Narrow())
    assert describe(space)["where"][0][2].endswith(":")
