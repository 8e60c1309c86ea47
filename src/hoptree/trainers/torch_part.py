"""The part of a model that a worker holds while it trains: the parameters that it owns.

Every worker has the whole module. A parameter that belongs to another worker has no memory: its shape stays, its
storage is empty. Between units the worker that leads has everything, so that it can be dumped and evaluated; what
it does not own is in mapped files then. An offloaded model on one worker is a part that owns everything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import nn
from torch.optim import Optimizer

from hoptree.trainers.gang import ModelPlacement
from hoptree.trainers.torch_gang import Gang
from hoptree.trainers.torch_mapped import SMALL, is_mapped, map_state, mapped_like, unmap_all

EVERY = -1  # the owner of a parameter that each worker has


@final
class ModelPart:
    """Which parameters this worker holds; ``owners`` has the rank of the owner of each, or ``EVERY``."""

    def __init__(self, module: nn.Module, placement: ModelPlacement) -> None:
        self.layout, self.rank, self.size = placement.layout, placement.rank, placement.size
        named = list(module.named_parameters())
        self.names, self.parameters = [name for name, _ in named], [parameter for _, parameter in named]
        self.owners: list[int] | None = [EVERY] * len(named) if placement.layout.is_whole else None
        self._windows: dict[int, torch.Tensor] = {}  # the tensors of absent parameters, with an empty storage
        self._copies: dict[int, torch.Tensor] = {}  # where a leader keeps what it does not own, between units

    def owns(self, number: int) -> bool:
        """Return whether this worker holds a parameter while it trains."""
        return self.owners is None or self.owners[number] in (self.rank, EVERY)

    def hold(self, optimizer: Optimizer, owners: Sequence[int]) -> None:
        """Take the own parameters into memory unless they are offloaded, and free those of others."""
        self.owners = list(owners)
        with torch.no_grad():
            for number, parameter in enumerate(self.parameters):
                if not self.owns(number):
                    self._free(number, optimizer)
                elif not self.layout.offload:
                    _to_memory(parameter, optimizer)
                else:
                    self.settle(number, optimizer)

    def _free(self, number: int, optimizer: Optimizer) -> None:
        parameter = self.parameters[number]
        optimizer.state.pop(parameter, None)
        if number in self._windows and parameter.data_ptr() == 0:
            return
        if self.rank == 0:
            self._copies[number] = parameter.data
        if number not in self._windows:
            self._windows[number] = torch.empty_like(parameter.data)
            self._windows[number].untyped_storage().resize_(0)
        parameter.data = self._windows[number]

    def settle(self, number: int, optimizer: Optimizer) -> None:
        """Keep a parameter and its optimizer state in mapped files, and give their pages back."""
        parameter = self.parameters[number]
        slots = optimizer.state.get(parameter, {})
        map_state(slots)
        unmap_all([parameter.data, *slots.values()])

    @contextmanager
    def present(self, number: int) -> Iterator[torch.Tensor]:
        """Give an absent parameter memory for a while; the content is the caller's affair."""
        window = self._windows[number]
        storage = window.untyped_storage()
        storage.resize_(window.element_size() * window.numel())
        try:
            yield window
        finally:
            storage.resize_(0)

    def place_loaded(self, slots: dict[str, Any]) -> None:
        """Keep the optimizer state of a parameter that was loaded where this part keeps it until it trains."""
        if self.layout.offload or self.owners is None:
            map_state(slots)
            unmap_all(slots.values())

    # --- the whole model, between units -------------------------------------------------------------------

    def collect(self, optimizer: Optimizer, gang: Gang) -> None:
        """Give the worker that leads all parameters with their optimizer state."""
        for number, parameter in enumerate(self.parameters):
            assert self.owners is not None
            owner = self.owners[number]
            if owner in (0, EVERY):
                continue
            if self.rank == owner:
                slots = optimizer.state.get(parameter, {})
                _send(gang, parameter.data, slots)
                unmap_all([parameter.data, *slots.values()])
            elif self.rank == 0:
                parameter.data = self._copy_of(number)
                slots = _receive(gang, owner, parameter.data)
                if slots:
                    optimizer.state[parameter] = slots
                unmap_all([parameter.data, *slots.values()])

    def _copy_of(self, number: int) -> torch.Tensor:
        if number not in self._copies:
            self._copies[number] = _mapped_empty(self.parameters[number].data)
        return self._copies.pop(number)


def storage_is_empty(tensor: torch.Tensor) -> bool:
    """Return whether a tensor belongs to a parameter of which another worker has the content."""
    return bool(tensor.numel()) and tensor.layout is torch.strided and not tensor.untyped_storage().nbytes()


def shared_memory(module: nn.Module) -> str:
    """Return "" if each parameter has memory of its own, else which one has not."""
    seen: set[int] = set()
    for name, parameter in module.named_parameters():
        memory = parameter.untyped_storage().data_ptr() if parameter.layout is torch.strided else 0
        if memory and memory in seen:
            return (
                f"the parameter {name!r} shares its memory with another one; to share one, assign the same "
                "nn.Parameter twice"
            )
        seen.add(memory)
    return ""


def balanced_owners(sizes: Sequence[int], ranks: int) -> list[int]:
    """Divide parameters by size in bytes: the largest first, each to the rank that has least; small ones to every.

    >>> balanced_owners([1 << 20, 3 << 20, 2 << 20, 100], 2)
    [1, 0, 1, -1]
    """
    owners, loads = [EVERY] * len(sizes), [0] * ranks
    for number in sorted(range(len(sizes)), key=lambda number: (-sizes[number], number)):
        if sizes[number] >= SMALL:
            owners[number] = loads.index(min(loads))
            loads[owners[number]] += sizes[number]
    return owners


def _to_memory(parameter: nn.Parameter, optimizer: Optimizer) -> None:
    if is_mapped(parameter.data):
        parameter.data = parameter.data.clone()
    slots = optimizer.state.get(parameter, {})
    for name, value in slots.items():
        if isinstance(value, torch.Tensor) and value.layout is torch.strided and is_mapped(value):
            slots[name] = value.clone()


def _send(gang: Gang, content: torch.Tensor, slots: Mapping[str, Any]) -> None:
    """Send a parameter and its optimizer state to the worker that leads."""
    tensors = {name: value for name, value in slots.items() if isinstance(value, torch.Tensor)}
    kinds = {name: [str(each.dtype)[6:], list(each.shape), list(each.stride())] for name, each in tensors.items()}
    others = {name: value for name, value in slots.items() if name not in tensors}
    gang.send_text(json.dumps({"tensors": kinds, "others": others}), 0)
    for tensor in (content, *tensors.values()):
        gang.send(dense(tensor), 0)


def _receive(gang: Gang, owner: int, content: torch.Tensor) -> dict[str, Any]:
    """Receive a parameter into a tensor, and return its optimizer state."""
    meta = json.loads(gang.receive_text(owner))
    gang.receive(dense(content), owner)
    slots: dict[str, Any] = dict(meta["others"])
    for name, (kind, shape, stride) in meta["tensors"].items():
        slots[name] = _mapped_empty(torch.empty_strided(shape, stride, dtype=getattr(torch, kind), device="meta"))
        gang.receive(dense(slots[name]), owner)
    return slots


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor without gaps as a vector in the order of its memory, without a copy."""
    return tensor.detach().as_strided((tensor.numel(),), (1,))


def _mapped_empty(like: torch.Tensor) -> torch.Tensor:
    if like.nbytes >= SMALL:
        return mapped_like(like)
    return torch.empty_like(like, device="cpu")
