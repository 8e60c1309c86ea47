"""Connections between the workers of a gang: a worker that has failed to connect once connects again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import msgspec
import pytest
import torch

from hoptree.core.layouts import DATA, PIPELINE, SHARDED, SINGLE
from hoptree.trainers.gang import GangMember
from hoptree.trainers.torch_groups import gpu_refusal


class Rank:
    """A process that becomes a rank of the gangs that it is told."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.trainers.gang_rank", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self.answer()

    def join(self, member: GangMember, then: str = "", timeout: float = 600) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{msgspec.json.encode(member).decode()}|{timeout}|{then}\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


Start = Callable[..., Rank]


@pytest.fixture
def start() -> Iterator[Start]:
    ranks: list[Rank] = []

    def make(*options: str) -> Rank:
        ranks.append(Rank(*options))
        return ranks[-1]

    yield make
    for rank in ranks:
        rank.end()


def gang(name: str, *ranks: Rank) -> list[str]:
    for number, rank in enumerate(ranks):
        rank.join(GangMember(ranks[0].address, name, number, len(ranks)))
    return [rank.answer() for rank in ranks]


@pytest.mark.parametrize(("size", "total"), [(2, "11.0"), (4, "1111.0")])
def test_all_ranks_get_the_sum(start: Start, size: int, total: str) -> None:
    ranks = [start() for _ in range(size)]
    expected = [f"[{', '.join([total] * 5)}]"] * size
    assert gang("one", *ranks) == expected
    assert gang("one", *ranks) == expected  # by the same connections
    assert gang("two", *reversed(ranks)) == expected


@pytest.mark.parametrize(("size", "total"), [(2, "11.0"), (4, "1111.0")])
def test_tensors_on_gpus_have_a_group_of_their_own(start: Start, size: int, total: str) -> None:
    ranks = [start("stand-in") for _ in range(size)]
    assert gang("one", *ranks) == [f"[{', '.join([total] * 5)}]"] * size


@pytest.mark.skipif(torch.distributed.is_nccl_available(), reason="this build of torch has NCCL")
def test_layouts_that_cannot_be_on_gpus_say_so() -> None:
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert not gpu_refusal(SINGLE, gpu)
    assert "has no NCCL" in gpu_refusal(DATA, gpu)
    assert all("not been tried" in gpu_refusal(kind, gpu) for kind in (SHARDED, PIPELINE))
    assert not any(gpu_refusal(kind, cpu) for kind in (SINGLE, DATA, SHARDED, PIPELINE))


def test_a_rank_that_dies_is_noticed_at_once_and_a_new_one_takes_its_place(start: Start) -> None:
    leader, lost = start(), start()
    lost.join(GangMember(leader.address, "one", 1, 2), "die")
    leader.join(GangMember(leader.address, "one", 0, 2))
    assert "was lost" in leader.answer()
    assert gang("two", leader, start()) == ["[11.0, 11.0, 11.0, 11.0, 11.0]"] * 2


@pytest.mark.parametrize("number", [0, 1])
def test_a_rank_that_waited_in_vain_joins_another_gang(start: Start, number: int) -> None:
    alone, other = start(), start()
    alone.join(GangMember((other if number else alone).address, "one", number, 2), timeout=0.2)
    assert alone.answer() == "error: 1 of 2 workers came within 0 s to train a unit"
    assert gang("two", other, alone) == ["[11.0, 11.0, 11.0, 11.0, 11.0]"] * 2
    assert gang("three", alone, start()) == ["[11.0, 11.0, 11.0, 11.0, 11.0]"] * 2
