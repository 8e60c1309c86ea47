"""Exchanges what the workers of a gang have computed: each gets the sum that one worker gets from all shards.

Every rank adds the shards of its own subtree; the sums of all ranks are then added by the same tree on every rank.
So the bits depend neither on the number of ranks nor on the backend's own order of addition.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import timedelta
from typing import final

import torch
from torch import distributed

from hoptree.trainers.errors import GangError
from hoptree.trainers.gang import GangMember
from hoptree.trainers.torch_tree import TreeSum

_TIMEOUT = timedelta(seconds=60)  # for a worker whose machine is gone; one that has died is noticed at once
_current: list[GangMember] = []  # the gang to which this process is connected, if any


@final
class Gang:
    """The connection of a worker to the others of its gang."""

    def __init__(self, member: GangMember) -> None:
        self.rank, self.size = member.rank, member.size
        _connect(member)

    def gather(self, own: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors of all ranks, which have one shape and type."""
        found = [torch.empty_like(own) for _ in range(self.size)]
        self._call(distributed.all_gather, found, own)
        return found

    def add(self, own: torch.Tensor) -> torch.Tensor:
        """Return the sum over all ranks by the tree; the memory of ``own`` may be used for it."""
        if self.size == 2:
            first, second = self.gather(own)
            return first.add_(second)
        length = -(-own.numel() // self.size)
        padded = torch.zeros(length * self.size, dtype=own.dtype)
        padded[: own.numel()] = own
        parts = torch.empty_like(padded)
        self._call(distributed.all_to_all_single, parts, padded)
        tree: TreeSum[torch.Tensor] = TreeSum(torch.Tensor.add_)
        for part in parts.view(self.size, length):
            tree.push(part)
        total = tree.total()
        assert total is not None
        return torch.cat(self.gather(total))[: own.numel()]

    def texts(self, own: str) -> list[str]:
        """Return a text of every rank."""
        found: list[str] = [""] * self.size
        self._call(distributed.all_gather_object, found, own)
        return found

    def _call(self, collective: object, *arguments: object) -> None:
        try:
            collective(*arguments)  # type: ignore[operator]
        except (RuntimeError, ValueError) as error:
            disconnect()
            raise GangError(f"a worker that trained this unit together with others was lost: {error}") from error


def disconnect() -> None:
    """Close the connections to other workers; those that wait for this one get an error."""
    _current.clear()
    if distributed.is_initialized():
        with suppress(RuntimeError):
            distributed.destroy_process_group()


def _connect(member: GangMember) -> None:
    """Connect to the workers of a gang, or keep the connections if they are the same as before."""
    if _current == [member]:
        return
    disconnect()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all of them are on this machine
    try:
        store = distributed.FileStore(member.store, member.size)  # type: ignore[attr-defined]
        distributed.init_process_group(
            "gloo", store=store, rank=member.rank, world_size=member.size, timeout=_TIMEOUT
        )
    except RuntimeError as error:
        disconnect()
        raise GangError(f"{member.size} workers could not connect to each other: {error}") from error
    _current.append(member)
