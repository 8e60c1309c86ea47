"""The tree over all leaves has the bits of the tree over its subtrees, however many devices there are."""

from __future__ import annotations

import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hoptree.trainers.torch_tree import TreeSum, add_gradients

FLOATS = st.floats(-1e30, 1e30)


def total(leaves, add=lambda one, two: one + two):
    tree = TreeSum(add)
    for leaf in leaves:
        tree.push(leaf)
    return tree.total()


def recursive(leaves):
    """Return the sum of a balanced tree over 2 ** n positions, written down as it is defined."""
    if len(leaves) == 1:
        return leaves[0]
    half = len(leaves) // 2
    left, right = recursive(leaves[:half]), recursive(leaves[half:])
    if left is None or right is None:
        return right if left is None else left
    return left + right


def bits(value):
    return None if value is None else struct.pack(">d", value)


@st.composite
def positions(draw):
    """Return the leaves of 1 to 64 positions; some may be absent, and so may all at the end."""
    count = 2 ** draw(st.integers(0, 6))
    present = draw(st.integers(0, count))
    leaves = draw(st.lists(st.one_of(st.none(), FLOATS), min_size=present, max_size=present))
    return leaves + [None] * (count - present)


@given(positions())
def test_ranks_that_add_their_own_shards_get_the_same_bits(leaves):
    expected = bits(recursive(leaves))
    assert bits(total(leaves)) == expected
    ranks = 1
    while ranks <= len(leaves):
        each = len(leaves) // ranks
        sums = [total(leaves[rank * each : (rank + 1) * each]) for rank in range(ranks)]
        assert bits(total(sums)) == expected, f"{ranks} ranks"
        ranks *= 2


@given(st.lists(FLOATS, min_size=1, max_size=70))
def test_leaves_at_the_end_need_not_arrive(leaves):
    count = 1 << (len(leaves) - 1).bit_length()
    assert bits(total(leaves)) == bits(recursive(leaves + [None] * (count - len(leaves))))


@pytest.mark.parametrize("count", [1, 2, 8, 64])
def test_memory_grows_with_the_depth(count):
    alive, most = set(), 0

    def add(one, two):
        alive.remove(two)
        return one

    tree = TreeSum(add)
    for leaf in range(count):
        alive.add(leaf)
        most = max(most, len(alive))
        tree.push(leaf)
    assert tree.total() == 0
    assert most <= count.bit_length()


def test_a_sum_starts_again_after_its_total():
    tree = TreeSum(lambda one, two: one + two)
    assert tree.total() is None
    for leaf in (1.0, 2.0, 3.0):
        tree.push(leaf)
    assert tree.total() == 6.0
    tree.push(5.0)
    assert tree.total() == 5.0


def test_an_absent_gradient_counts_as_nothing():
    zero = torch.tensor([-0.0])
    left = [torch.tensor([1.0]), None, zero, None, zero.clone()]
    right = [torch.tensor([2.0]), torch.tensor([3.0]), None, None, zero.clone()]
    one, two, three, four, five = add_gradients(left, right)
    assert (one.item(), two.item(), four) == (3.0, 3.0, None)
    assert torch.signbit(three).item()
    assert torch.signbit(five).item()


@given(positions())
def test_an_absent_gradient_is_like_negative_zero(leaves):
    """Ranks that exchange whole buffers may fill in -0.0 for a gradient that they do not have."""
    filled = [-0.0 if leaf is None else leaf for leaf in leaves]
    expected = total(leaves)
    assert bits(total(filled)) == bits(-0.0 if expected is None else expected)
