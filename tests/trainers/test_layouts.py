"""Layouts: a unit gives the same bits however many workers train it, and however they hold the model."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import combinations, count
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from hoptree.trainers import torch_layouts, torch_mapped
from hoptree.trainers.base import ModelState
from hoptree.trainers.errors import TrainerError
from hoptree.trainers.gang import GangMember
from hoptree.trainers.torch_stages import LayerCost, cut
from tests.trainers import digits, layout_nets
from tests.trainers.digits import states_equal
from tests.trainers.layout_rank import Task

_numbers = count()
SMALL = 256  # bytes of parameters that every rank has


class Ranks:
    """Processes that train together."""

    def __init__(self, size: int, folder: Path) -> None:
        self._folder = folder
        command = [sys.executable, "-m", "tests.trainers.layout_rank", str(SMALL)]
        self.processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(size)
        ]
        self.addresses = [self._answer(rank) for rank in range(size)]

    def _answer(self, rank: int) -> str:
        out = self.processes[rank].stdout
        assert out is not None
        return out.readline().strip()

    def train(self, layout: str, size: int, net: str, units: list[int], state: Any = None, **options: Any) -> Any:
        """Train units of a net, and return the state and the metrics; an error of a rank is a text."""
        number = next(_numbers)
        source, target = self._folder / f"from-{number}", self._folder / f"to-{number}"
        if state is not None:
            source.write_bytes(pickle.dumps(state))
        values = layout_nets.values(net)
        for rank in range(size):
            member = GangMember(self.addresses[0], f"gang {number}", rank, size, layout) if size > 1 else None
            task = Task(
                options, values, units, layout, str(source) if state is not None else "", str(target), member
            )
            pipe = self.processes[rank].stdin
            assert pipe is not None
            pipe.write(msgspec.json.encode(task).decode() + "\n")
            pipe.flush()
        errors = [msgspec.json.decode(self._answer(rank)) for rank in range(size)]
        return errors[0] or pickle.loads(target.read_bytes())

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    made = Ranks(4, tmp_path_factory.mktemp("states"))
    yield made
    made.end()


def expected(net: str, units: list[int], **options: Any) -> tuple[ModelState, dict[str, float]]:
    """Train in this process, with all parameters in memory."""
    trainer = layout_nets.trainer(**options)
    values = layout_nets.values(net)
    model = trainer.build(values, 7)
    digits.train(trainer, model, layout_nets.config(values), units)
    return trainer.dump(model), trainer.evaluate(model, digits.partition(-1), values)


def assert_same(found: Any, net: str, units: list[int], **options: Any) -> None:
    assert not isinstance(found, str), found
    state, metrics = expected(net, units, **options)
    different = [name for name in state.arrays if state.arrays[name].tobytes() != found[0].arrays[name].tobytes()]
    assert not different
    assert states_equal(found[0], state)
    assert found[1] == metrics


NETS = ["mlp", "cnn", "lstm", "transformer", "noise"]
ALONE = ["single+offload", "single+checkpoint", "single+offload+checkpoint"]
DIVIDED = [
    "data",
    "data+offload",
    "sharded",
    "sharded+offload",
    "sharded+checkpoint",
    "pipeline",
    "pipeline+offload+checkpoint",
]


@pytest.mark.parametrize("layout", ALONE)
@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("net", [*NETS, "tied", "experts", "nested transformer"])
def test_one_worker_with_little_memory(ranks: Ranks, net: str, layout: str, shards: int) -> None:
    assert_same(ranks.train(layout, 1, net, [0, 1], shards=shards), net, [0, 1], shards=shards)


@pytest.mark.parametrize("layout", DIVIDED)
@pytest.mark.parametrize("net", NETS)
def test_two_workers(ranks: Ranks, net: str, layout: str) -> None:
    assert_same(ranks.train(layout, 2, net, [0, 1]), net, [0, 1])


@pytest.mark.parametrize("layout", ["data", "sharded", "pipeline", "sharded+offload+checkpoint"])
@pytest.mark.parametrize("net", ["mlp", "transformer"])
def test_four_workers(ranks: Ranks, net: str, layout: str) -> None:
    assert_same(ranks.train(layout, 4, net, [0, 1], shards=8, accumulate=2), net, [0, 1], shards=8, accumulate=2)


@pytest.mark.parametrize("net", ["tied", "nested transformer"])
@pytest.mark.parametrize("layout", ["sharded", "sharded+offload", "sharded+checkpoint"])
def test_models_that_are_no_sequence_are_divided(ranks: Ranks, net: str, layout: str) -> None:
    assert_same(ranks.train(layout, 2, net, [0, 1]), net, [0, 1])


def test_a_layout_continues_what_any_other_has_begun(ranks: Ranks) -> None:
    state = None
    for unit, (layout, size) in enumerate(
        [
            ("sharded", 2),
            ("pipeline", 4),
            ("single+offload", 1),
            ("data", 4),
            ("pipeline+offload", 2),
            ("single", 1),
        ]
    ):
        found = ranks.train(layout, size, "transformer", [unit], state)
        assert not isinstance(found, str), found
        state = found[0]
    assert_same(found, "transformer", list(range(6)))


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "rmsprop", "adafactor", "asgd", "muon"])
@pytest.mark.parametrize(("layout", "size"), [("single+offload", 1), ("sharded", 2), ("pipeline", 2)])
def test_optimizers_of_torch(ranks: Ranks, optimizer: str, layout: str, size: int) -> None:
    net = "wide" if optimizer == "muon" else "mlp"
    assert_same(ranks.train(layout, size, net, [0, 1], optimizer=optimizer), net, [0, 1], optimizer=optimizer)


@pytest.mark.parametrize("net", ["fails", "fails in training"])
@pytest.mark.parametrize("layout", ["sharded", "pipeline", "data"])
def test_the_error_of_any_rank_is_known_to_the_one_that_leads(ranks: Ranks, layout: str, net: str) -> None:
    found = ranks.train(layout, 2, net, [0])
    assert "TrainerError" in found
    assert "ValueError: the last layer fails" in found
    assert_same(ranks.train(layout, 2, "mlp", [0]), "mlp", [0])  # the same processes form a gang again


def test_a_model_whose_operations_depend_on_the_data_cannot_be_sharded(ranks: Ranks) -> None:
    found = ranks.train("sharded", 2, "experts", [0])
    assert "'sharded' needs the same operations for every shard of a batch" in found


@pytest.mark.parametrize(
    ("net", "options", "kind", "why"),
    [
        ("nested transformer", {}, "pipeline", "the model is a Transformer; expected an nn.Sequential"),
        ("one layer", {}, "pipeline", "with at least as many layers with parameters as workers"),
        ("mlp", {"shards": 1}, "pipeline", "it needs shards=2 or more"),
        ("mlp", {"shards": 1}, "data", "it needs shards=2 or more"),
        ("mlp", {"optimizer": "lbfgs"}, "sharded", "LBFGS"),
        (
            "mlp",
            {"optimizer": layout_nets.OwnSGD},
            "sharded",
            "OwnSGD may compute its step from several parameters",
        ),
        ("mlp", {}, "sharded", ""),
        ("mlp", {}, "pipeline", ""),
    ],
)
def test_a_layout_that_cannot_take_a_model_says_why(net: str, options: Any, kind: str, why: str) -> None:
    trainer = layout_nets.trainer(**options)
    found = trainer.layout_kinds(trainer.build(layout_nets.values(net), 0))[kind]
    assert (why in found) if why else not found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layout": "diagonal"}, "layout: 'diagonal' is not registered; expected 'auto' or one of single, data"),
        ({"layout": "sharded", "shards": 1}, "layout: 'sharded' with shards=1"),
        ({"layout": 3}, "layout: 3; expected 'auto' or one of"),
        ({"offload": "yes"}, "offload: 'yes'; expected True, False or 'auto'"),
        ({"checkpoint": 1.5}, "checkpoint: 1.5; expected True, False or 'auto'"),
    ],
)
def test_bad_settings(options: Any, message: str) -> None:
    with pytest.raises(TrainerError) as caught:
        layout_nets.trainer(**options)
    assert message in str(caught.value)


def test_layouts_are_no_part_of_the_fingerprint() -> None:
    plain = layout_nets.trainer().fingerprint
    for options in ({"layout": "pipeline"}, {"offload": True}, {"checkpoint": True}, {"offload": False}):
        assert layout_nets.trainer(**options).fingerprint == plain


class Half:
    """A layout of a third party: the first worker does everything."""

    def refusal(self, model: Any, shards: int) -> str:
        return ""

    def owners(self, model: Any, gang: Any, inputs: Any) -> list[int]:
        return [0 for _ in model.module.parameters()]

    def gradients(self, unit: Any) -> Any:
        return torch_layouts.find_layout("data").gradients(unit)


def test_a_layout_can_be_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_layouts, "_layouts", dict(torch_layouts._layouts))
    torch_layouts.register_layout("half", Half())
    trainer = layout_nets.trainer(layout="half")
    model = trainer.build(layout_nets.values("mlp"), 0)
    assert trainer.layout_kinds(model)["half"] == ""


def test_parameters_that_share_memory_are_refused() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            memory = torch.zeros(1 << 15)
            self.one, self.two = nn.Parameter(memory), nn.Parameter(memory)

    with pytest.raises(TrainerError, match="shares its memory"), torch_mapped.mapped_parameters():
        Shared()


def test_pages_of_private_memory_are_never_given_back() -> None:
    tensor = torch.ones(1 << 16)
    torch_mapped.unmap_all([tensor, 3, None])
    assert bool((tensor == 1).all())
    copy = torch_mapped.mapped(tensor)
    assert torch_mapped.is_mapped(copy)
    torch_mapped.unmap_pages(copy)
    assert bool((copy == 1).all())
    assert torch_mapped.mapped(copy) is copy


def test_a_full_disk_is_an_error_with_a_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    huge = torch.empty(1 << 60, dtype=torch.uint8, device="meta")
    with pytest.raises(TrainerError, match=r"offload: there is no room for .* set the environment variable TMPDIR"):
        torch_mapped.mapped_like(huge)
    assert not list(tmp_path.iterdir())


@given(
    st.lists(st.tuples(st.floats(0.001, 10), st.integers(0, 1000), st.booleans()), min_size=1, max_size=8),
    st.integers(1, 4),
)
def test_stages_are_the_best_of_all_ways_to_cut(costs: list[tuple[float, int, bool]], stages: int) -> None:
    layers = [LayerCost(*cost) for cost in costs]
    places = [number + 1 for number in range(len(layers) - 1) if layers[number].may_end]
    if len(places) < stages - 1:
        with pytest.raises(TrainerError, match="layout: 'pipeline'"):
            cut(layers, stages)
        return

    def worst(starts: tuple[int, ...]) -> float:
        ends = (*starts[1:], len(layers))
        seconds, size = sum(each.seconds for each in layers), sum(each.size for each in layers) or 1
        return max(
            max(
                sum(each.seconds for each in layers[a:b]) / seconds,
                sum(each.size for each in layers[a:b]) / size,
            )
            for a, b in zip(starts, ends, strict=True)
        )

    found = cut(layers, stages)
    best = min(worst((0, *chosen)) for chosen in combinations(places, stages - 1))
    assert found[0] == 0
    assert set(found[1:]) <= set(places)
    assert worst(tuple(found)) == pytest.approx(best)
