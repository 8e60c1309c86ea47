"""Layouts: models, schedules and batches that differ from the usual ones give the same bits, or a clear error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from torch import nn

from hoptree.trainers.torch_recompute import ambiguous
from hoptree.trainers.torch_stages import layers
from tests.trainers import layout_nets
from tests.trainers.test_layouts import Ranks, assert_same


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    made = Ranks(4, tmp_path_factory.mktemp("states"))
    yield made
    made.end()


def check(ranks: Ranks, layout: str, size: int, net: str, units: tuple[int, ...] = (0, 1), **options: Any) -> None:
    found = ranks.train(layout, size, net, list(units), **options)
    assert_same(found, net, list(units), **options)


@pytest.mark.parametrize("layout", ["pipeline", "pipeline+checkpoint", "sharded"])
def test_an_activation_that_is_called_several_times(ranks: Ranks, layout: str) -> None:
    check(ranks, layout, 2, "shared activation")


def test_a_layer_that_is_called_twice_is_there_twice() -> None:
    same = nn.Tanh()
    assert layers(nn.Sequential(nn.Linear(2, 2), same, nn.Sequential(nn.Linear(2, 2), same)))[1::2] == [same, same]


@pytest.mark.parametrize(
    ("layout", "size"), [("data", 2), ("sharded", 2), ("pipeline", 2), ("data", 4), ("sharded", 4)]
)
def test_buffers_that_come_with_the_first_batch(ranks: Ranks, layout: str, size: int) -> None:
    check(ranks, layout, size, "late/66")  # its last batch has fewer shards than workers


@pytest.mark.parametrize("layout", ["data", "sharded", "pipeline", "sharded+offload"])
def test_parameters_without_a_gradient(ranks: Ranks, layout: str) -> None:
    check(ranks, layout, 2, "partial/39", accumulate=3)


@pytest.mark.parametrize("hook", ["thaw", "freeze"])
@pytest.mark.parametrize("layout", ["sharded", "sharded+checkpoint", "pipeline", "data"])
def test_layers_that_are_frozen_for_a_while(ranks: Ranks, layout: str, hook: str) -> None:
    check(ranks, layout, 2, "thaws", (0, 1, 2), hook=hook)


@pytest.mark.parametrize("layout", ["sharded+offload", "pipeline", "data"])
@pytest.mark.parametrize("net", ["scheduled", "switches"])
def test_values_that_change_within_a_unit(ranks: Ranks, layout: str, net: str) -> None:
    check(ranks, layout, 2, net)


@pytest.mark.parametrize(("layout", "size"), [("data", 4), ("sharded", 4), ("pipeline", 2)])
@pytest.mark.parametrize("net", ["noise/5", "noise/66"])
def test_batches_with_fewer_shards_than_workers(ranks: Ranks, layout: str, size: int, net: str) -> None:
    check(ranks, layout, size, net, (0,), accumulate=3)


@pytest.mark.parametrize(("layout", "size"), [("single+checkpoint", 1), ("sharded+checkpoint", 2), ("pipeline", 2)])
@pytest.mark.parametrize("precision", ["bfloat16", "float64", "float32"])
def test_a_layer_called_twice_in_any_precision(ranks: Ranks, layout: str, size: int, precision: str) -> None:
    check(ranks, layout, size, "shared layer", precision=precision)


@pytest.mark.parametrize(("layout", "size"), [("single+checkpoint", 1), ("sharded+checkpoint", 2)])
@pytest.mark.parametrize("net", ["recurrent", "again"])
def test_a_layer_or_block_that_is_called_many_times(ranks: Ranks, layout: str, size: int, net: str) -> None:
    check(ranks, layout, size, net)


def test_a_layer_that_calls_another_twice_cannot_be_computed_again_if_others_do() -> None:
    same = nn.Linear(2, 2)
    twice = nn.Sequential(same, nn.Sequential(nn.Tanh(), same))
    assert ambiguous(nn.Sequential(twice, same)) == "0.0.weight"
    assert ambiguous(nn.Sequential(same, same, same)) == ""
    assert ambiguous(nn.Sequential(twice, nn.Tanh())) == ""


@pytest.mark.parametrize("layout", ["sharded", "pipeline"])
def test_on_values_cannot_use_what_another_worker_has(ranks: Ranks, layout: str) -> None:
    found = ranks.train(layout, 2, "scheduled", [0, 1], hook="clamp")
    assert (
        f"on_values: it uses the content of '0.weight', of which each worker has a part with layout={layout!r}"
        in found
    )
    check(ranks, "data", 2, "scheduled", hook="clamp")


@pytest.mark.parametrize("layout", ["sharded", "pipeline"])
def test_a_schedule_cannot_switch_to_an_optimizer_that_needs_all_parameters(ranks: Ranks, layout: str) -> None:
    found = ranks.train(layout, 2, "switches to lbfgs", [0, 1])
    assert "optimizer: the optimizer LBFGS may compute its step from several parameters" in found
    assert f"the model is in the layout {layout!r}" in found
    check(ranks, "data", 2, "switches to lbfgs")
    check(ranks, "single+offload", 1, "switches to lbfgs")


@pytest.mark.parametrize("kind", ["sharded", "pipeline"])
def test_parameters_that_are_views_of_others_cannot_be_divided(kind: str) -> None:
    trainer = layout_nets.trainer()
    found = trainer.layout_kinds(trainer.build(layout_nets.values("view"), 0))
    assert "the parameter '2.weight' shares its memory with another one" in found[kind]
    assert not found["data"]
