"""A process that is a rank of one gang after another: it reads members as JSON, and writes sums or errors."""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta
from typing import Any

import msgspec
import torch

from hoptree.trainers import torch_gang, torch_groups
from hoptree.trainers.errors import GangError
from hoptree.trainers.gang import GangMember


class StandIn:
    """In place of NCCL: a group of gloo that refuses what is not on the "GPU"."""

    class Options:
        pass

    def __init__(self, store: Any, rank: int, size: int, options: Options) -> None:
        own = torch_groups.distributed.ProcessGroupGloo._Options()
        own._timeout = options._timeout
        own._devices = [torch_groups.distributed.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
        self._group = torch_groups.distributed.ProcessGroupGloo(store, rank, size, own)

    def allgather(self, found: list[list[torch.Tensor]], own: list[torch.Tensor]) -> Any:
        assert own[0].is_floating_point()
        return self._group.allgather(found, own)

    def alltoall_base(self, found: torch.Tensor, own: torch.Tensor, *sizes: list[int]) -> Any:
        assert own.is_floating_point()
        return self._group.alltoall_base(found, own, *sizes)


def use_stand_in() -> None:
    """Count floating-point tensors as tensors on a GPU."""
    torch_groups.distributed.ProcessGroupNCCL = StandIn
    for module in (torch_gang, torch_groups):
        module.memory_of = lambda tensor: "cuda" if tensor.is_floating_point() else "cpu"


def main() -> None:
    if sys.argv[1:] == ["stand-in"]:
        use_stand_in()
    print(torch_gang.open_rendezvous("127.0.0.1"), flush=True)
    for line in sys.stdin:
        text, seconds, then = line.strip().split("|")
        torch_gang._TIMEOUT = timedelta(seconds=float(seconds))
        member = msgspec.json.decode(text, type=GangMember)
        try:
            gang = torch_gang.Gang(member)
            if then == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            total = gang.add(torch.full((5,), 10.0**member.rank))
            assert gang.texts(str(member.rank)) == [str(rank) for rank in range(member.size)]
            print(total.tolist(), flush=True)
        except GangError as error:
            print(f"error: {error}", flush=True)


if __name__ == "__main__":
    main()
