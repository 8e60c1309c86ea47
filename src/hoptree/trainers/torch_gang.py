"""Exchanges what the workers of a gang have computed: each gets the sum that one worker gets from all shards.

Every rank adds the shards of its own subtree; the sums of all ranks are then added by the same tree on every rank.
So the bits depend neither on the number of ranks nor on the backend's own order of addition.

The process groups are Hoptree's own: torch's default group is the user's, and its name counts groups per process,
so that a worker that has once failed to connect would never again agree with one that has not.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, final

import torch

from hoptree.trainers.errors import GangError
from hoptree.trainers.gang import GangMember
from hoptree.trainers.torch_groups import HOST, GangGroups, distributed, memory_of
from hoptree.trainers.torch_tree import TreeSum

_TIMEOUT = timedelta(seconds=60)  # for a worker whose machine is gone; one that has died is noticed at once
_TAG = 1  # of messages between two ranks, which arrive in the order in which they are sent
_SWAP_TAG = 2  # of what two ranks tell each other
_POLL = 0.0005  # seconds between two looks for the others, in Python, so that a cancelled run need not wait


@final
class _Connection:
    """The gang to which this process is connected, if any, and the stores that it knows."""

    def __init__(self) -> None:
        self.member: GangMember | None = None
        self.groups: GangGroups | None = None
        self.address = ""  # of the rendezvous that this process has opened
        self.stores: dict[str, Any] = {}  # by address
        self.left = ""  # the gang for which it must not wait


_here = _Connection()


def open_rendezvous(host: str) -> str:
    """Let other workers find this one, if it leads; return its address. It listens on ``host`` only."""
    if not _here.address:
        listener = socket.create_server((host, 0), backlog=64)
        port = listener.getsockname()[1]
        _here.address = f"{host}:{port}"
        _here.stores[_here.address] = distributed.TCPStore(
            host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach(), timeout=_TIMEOUT
        )
    return _here.address


def rank_here() -> int | None:
    """Return the rank of this process in the gang that it trains with, or None if it trains alone."""
    return None if _here.member is None else _here.member.rank


@final
class Gang:
    """The connection of a worker to the others of its gang."""

    def __init__(self, member: GangMember) -> None:
        self.rank, self.size = member.rank, member.size
        self._groups = _connect(member)

    def gather(self, own: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors of all ranks, of one shape and type; that of this rank may be ``own`` itself."""
        own = own.contiguous()
        if self.size == 2 and memory_of(own) == HOST:
            other = self._swap(own)
            return [own, other] if self.rank == 0 else [other, own]
        found = [torch.empty_like(own) for _ in range(self.size)]
        self._wait(lambda: self._groups.of(own).allgather([found], [own]))
        return found

    def _swap(self, own: torch.Tensor) -> torch.Tensor:
        """Return the tensor of the only other rank: half the time of gloo's own gathering, which copies twice."""
        found = torch.empty_like(own)

        def swap() -> None:
            sent = self._groups.host.send([own], 1 - self.rank, _SWAP_TAG)
            self._groups.host.recv([found], 1 - self.rank, _SWAP_TAG).wait()
            sent.wait()

        self._start(swap)
        return found

    def add(self, own: torch.Tensor) -> torch.Tensor:
        """Return the sum over all ranks by the tree; the memory of ``own`` may be used for it."""
        if self.size == 2:
            first, second = self.gather(own)
            return first.add_(second)
        length = -(-own.numel() // self.size)
        padded = torch.zeros(length * self.size, dtype=own.dtype, device=own.device)
        padded[: own.numel()] = own
        parts = torch.empty_like(padded)
        self._wait(lambda: self._groups.of(padded).alltoall_base(parts, padded, [], []))
        tree: TreeSum[torch.Tensor] = TreeSum(torch.Tensor.add_)
        for part in parts.view(self.size, length):
            tree.push(part)
        total = tree.total()
        assert total is not None
        return torch.cat(self.gather(total))[: own.numel()]

    def send(self, tensor: torch.Tensor, rank: int) -> None:
        """Send a contiguous tensor to a rank, which receives it by ``receive``."""
        self._wait(lambda: self._groups.host.send([tensor], rank, _TAG))

    def send_later(self, tensor: torch.Tensor, rank: int) -> Callable[[], None]:
        """Begin to send a contiguous tensor; return a function that waits until it is sent."""
        work: list[Any] = []
        self._start(lambda: work.append(self._groups.host.send([tensor], rank, _TAG)))
        return lambda: self._wait(lambda: work[0])

    def receive(self, tensor: torch.Tensor, rank: int) -> None:
        """Receive what a rank has sent into a contiguous tensor of the same shape and type."""
        self._wait(lambda: self._groups.host.recv([tensor], rank, _TAG))

    def send_text(self, text: str, rank: int) -> None:
        """Send a text to a rank, which receives it by ``receive_text``."""
        data = torch.frombuffer(bytearray(text.encode() or b" "), dtype=torch.uint8)
        self.send(torch.tensor([len(data)]), rank)
        self.send(data, rank)

    def receive_text(self, rank: int) -> str:
        """Return the text that a rank has sent."""
        length = torch.zeros(1, dtype=torch.int64)
        self.receive(length, rank)
        data = torch.empty(int(length), dtype=torch.uint8)
        self.receive(data, rank)
        return bytes(data.tolist()).decode()

    def broadcast(self, tensor: torch.Tensor, rank: int) -> None:
        """Copy a contiguous tensor from a rank into those of the others."""
        self._wait(lambda: self._groups.host.broadcast(tensor, rank))

    def room_for(self, own: torch.Tensor, rank: int) -> list[torch.Tensor]:
        """Return memory for the tensors of all ranks on one rank, and nothing on the others."""
        return [torch.empty_like(own) for _ in range(self.size)] if self.rank == rank else []

    def gather_at(self, own: torch.Tensor, rank: int, found: list[torch.Tensor]) -> None:
        """Copy the tensors of all ranks to one rank, where ``found`` is room for them."""
        options = distributed.GatherOptions()
        options.rootRank = rank
        self._wait(lambda: self._groups.host.gather([found] if found else [], [own], options))

    def texts(self, own: str) -> list[str]:
        """Return a text of every rank."""
        data = own.encode()
        lengths = [int(each) for each in self.gather(torch.tensor([len(data)]))]
        padded = torch.zeros(max(1, *lengths), dtype=torch.uint8)
        if data:
            padded[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        rows = self.gather(padded)
        return [bytes(row[:length].tolist()).decode() for row, length in zip(rows, lengths, strict=True)]

    def _wait(self, start: Callable[[], Any]) -> None:
        self._start(lambda: start().wait())

    def _start(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except (RuntimeError, ValueError) as error:
            disconnect()
            raise GangError(f"a worker that trained this unit together with others was lost: {error}") from error


def disconnect() -> None:
    """Close the connections to other workers; those that wait for this one get an error."""
    _here.member = _here.groups = None


def stop_waiting(name: str) -> None:
    """Let the thread that waits for the workers of a gang raise an error; it may not have begun yet."""
    _here.left = name


def _connect(member: GangMember) -> GangGroups:
    """Connect to the workers of a gang, or keep the connections if they are the same as before."""
    if _here.member == member and _here.groups is not None:
        return _here.groups
    disconnect()
    try:
        store = distributed.PrefixStore(member.name, _store(member.rendezvous))
        _await_all(store, member)
        groups = GangGroups(store, member, _own_host(member.rendezvous), _TIMEOUT)
    except RuntimeError as error:
        _here.stores = {address: store for address, store in _here.stores.items() if address == _here.address}
        raise GangError(f"{member.size} workers could not connect to each other: {error}") from error
    _here.member, _here.groups = member, groups
    return groups


def _store(address: str) -> Any:
    if address not in _here.stores:
        host, _, port = address.rpartition(":")
        _here.stores[address] = distributed.TCPStore(
            host, int(port), is_master=False, wait_for_workers=False, timeout=_TIMEOUT
        )
    return _here.stores[address]


def _await_all(store: Any, member: GangMember) -> None:
    """Wait until all workers of a gang have come; raise an error if one does not come in time."""
    until = time.monotonic() + _TIMEOUT.total_seconds()
    arrived = store.add("arrived", 1)
    while arrived < member.size:
        if _here.left == member.name:
            raise GangError(f"{arrived} of {member.size} workers had come to train a unit when it was cancelled")
        if time.monotonic() > until:
            raise GangError(
                f"{arrived} of {member.size} workers came within {_TIMEOUT.total_seconds():.0f} s to train a unit"
            )
        time.sleep(_POLL)
        arrived = store.add("arrived", 0)


def _own_host(rendezvous: str) -> str:
    """Return the address of this machine by which it reaches the rendezvous: loopback on the same machine."""
    host, _, port = rendezvous.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # sends nothing
        probe.connect((host, int(port)))
        return str(probe.getsockname()[0])
