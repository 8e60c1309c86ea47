"""Layouts: a unit gives the same bits however many workers train it, and however they hold the model."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hoptree.trainers.base import ModelState
from hoptree.trainers.gang import GangMember
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
        values = {**layout_nets.VALUES, "net": net}
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
    values = {**layout_nets.VALUES, "net": net}
    model = trainer.build(values, 7)
    digits.train(trainer, model, values, units)
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
