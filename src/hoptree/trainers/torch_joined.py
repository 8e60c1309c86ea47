"""Outputs of many batches as one: every batch is copied into its place at once.

A list of small tensors, joined at the end, would cost far more than the tensors: each lies in the memory that its
batch has just freed, so that no later batch fits there, and evaluation ends up with as much memory as all its data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import torch


@final
class Joined:
    """What a model returned for the batches so far, on the CPU: tensors, or lists and mappings of them.

    >>> joined = Joined(batches=2)
    >>> joined.add({"a": torch.zeros(2, 3)})
    >>> joined.add({"a": torch.ones(1, 3)})
    >>> joined.all()["a"].shape
    torch.Size([3, 3])
    """

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._parts: Any = None

    def add(self, value: Any) -> None:
        """Take in the output for one batch."""
        self._parts = self._placed(self._parts, value)

    def all(self) -> Any:
        """Return everything, in order."""
        return _whole(self._parts)

    def _placed(self, parts: Any, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            rows = parts if parts is not None else _Rows(self._batches)
            rows.append(value.detach())
            return rows
        if isinstance(value, tuple | list):
            known = parts if parts is not None else (None,) * len(value)
            return tuple(self._placed(part, item) for part, item in zip(known, value, strict=True))
        if isinstance(value, Mapping):
            known = parts if parts is not None else {}
            return {name: self._placed(known.get(name), item) for name, item in value.items()}
        return [*(parts or []), value]


@final
class _Rows:
    """Rows in one tensor that has room for as many batches as will come, if they are as long as the first."""

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._length = 0
        self._room: torch.Tensor | None = None

    def append(self, part: torch.Tensor) -> None:
        part = part if part.ndim else part[None]
        end = self._length + len(part)
        room = self._room
        if room is None:
            room = torch.empty((len(part) * self._batches, *part.shape[1:]), dtype=part.dtype)
        dtype = torch.promote_types(room.dtype, part.dtype)
        if end > len(room) or dtype != room.dtype:
            grown = torch.empty((max(end, 2 * len(room)), *room.shape[1:]), dtype=dtype)
            grown[: self._length] = room[: self._length]
            room = grown
        room[self._length : end] = part
        self._room, self._length = room, end

    def whole(self) -> torch.Tensor:
        assert self._room is not None
        return self._room[: self._length]


def _whole(parts: Any) -> Any:
    if isinstance(parts, _Rows):
        return parts.whole()
    if isinstance(parts, tuple):
        return tuple(_whole(part) for part in parts)
    if isinstance(parts, dict):
        return {name: _whole(part) for name, part in parts.items()}
    return parts
