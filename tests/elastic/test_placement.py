"""The placement controller: nothing is oversubscribed, what fits stays, and gangs are not divided."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoptree.core.errors import WorkloadError
from hoptree.elastic.placement import Placement, nodes_to_release, place_trials

SIZES = st.sampled_from([1, 2, 4])
TRIALS = st.dictionaries(st.sampled_from([f"t{n}" for n in range(8)]), SIZES, max_size=8)


def used(placement: Placement, node: str) -> int:
    return sum(parts.get(node, 0) for parts in placement.values())


@given(before=TRIALS, after=TRIALS, count=st.integers(1, 6), gone=st.integers(0, 2))
def test_placements_are_valid_after_every_change(
    before: dict[str, int], after: dict[str, int], count: int, gone: int
) -> None:
    nodes = {f"n{n}": 4 for n in range(count)}
    last = place_trials(before, nodes)
    left = {
        node: size
        for node, size in nodes.items()
        if node not in nodes_to_release(min(gone, count - 1), after, nodes, last)
    }
    placement = place_trials(after, left, last)
    for node, size in left.items():
        assert used(placement, node) <= size
    for trial, parts in placement.items():
        assert sum(parts.values()) == after[trial]
        assert len(parts) == 1  # four devices fit one node
    if sum(after.values()) <= sum(left.values()):
        assert placement.keys() == after.keys()  # powers of two, the largest first: all fit


@given(before=TRIALS)
def test_what_does_not_change_stays(before: dict[str, int]) -> None:
    nodes = {f"n{n}": 4 for n in range(8)}
    last = place_trials(before, nodes)
    assert place_trials(before, nodes, last) == last
    fewer = dict(list(before.items())[1:])
    assert place_trials(fewer, nodes, last) == {trial: last[trial] for trial in last if trial in fewer}


@given(before=TRIALS)
def test_as_many_nodes_can_be_given_back_as_are_not_needed(before: dict[str, int]) -> None:
    nodes = {f"n{n}": 4 for n in range(8)}
    needed = -(-sum(before.values()) // 4)
    last = place_trials(before, nodes)
    going = nodes_to_release(8 - needed, before, nodes, last)
    left = {node: 4 for node in nodes if node not in going}
    assert place_trials(before, left, last).keys() == before.keys()


def test_smaller_trials_make_room_for_larger_ones() -> None:
    last = {"small": {"x": 1}, "other": {"y": 1}}
    placement = place_trials({"large": 4, "small": 1, "other": 1}, {"x": 4, "y": 4}, last)
    assert placement == {"other": {"y": 1}, "large": {"x": 4}, "small": {"y": 1}}


def test_a_trial_wider_than_a_node_has_whole_nodes() -> None:
    placement = place_trials({"wide": 8, "b": 2}, {"x": 4, "y": 4, "z": 4})
    assert sorted(placement["wide"].values()) == [4, 4]
    assert placement["b"] == {next(iter({"x", "y", "z"} - placement["wide"].keys())): 2}


def test_a_trial_divided_among_nodes_is_put_together() -> None:
    assert place_trials({"a": 2}, {"x": 2, "y": 2}, {"a": {"x": 1, "y": 1}}) == {"a": {"x": 2}}


def test_what_fits_nowhere_waits() -> None:
    assert place_trials({"a": 4, "b": 1}, {"x": 2}) == {"b": {"x": 1}}
    assert place_trials({"a": 1}, {}) == {}


def test_the_nodes_given_back_are_those_with_the_least_to_move() -> None:
    nodes = {"x": 4, "y": 4, "z": 4}
    last = {"a": {"x": 4}, "b": {"y": 1}, "c": {"z": 2}}
    assert nodes_to_release(1, {"a": 4, "b": 1, "c": 2}, nodes, last) == ("y",)
    assert nodes_to_release(2, {"a": 4, "c": 2}, nodes, last) == ("y", "z")


@pytest.mark.parametrize(
    ("devices", "nodes", "named"),
    [({"a": 0}, {"x": 1}, r"devices\['a'\]: 0"), ({"a": 1}, {"x": 0}, r"nodes\['x'\]: 0")],
)
def test_bad_counts_are_refused(devices: dict[str, int], nodes: dict[str, int], named: str) -> None:
    with pytest.raises(WorkloadError, match=named):
        place_trials(devices, nodes)


def test_more_nodes_than_there_are_cannot_be_given_back() -> None:
    with pytest.raises(WorkloadError, match="2 of 1 nodes"):
        nodes_to_release(2, {}, {"x": 1}, {})
