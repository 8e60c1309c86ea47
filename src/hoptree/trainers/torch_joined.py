"""Join the outputs of many batches: copy each batch into one large tensor immediately.

A list of small tensors that is joined at the end would need far more memory: each tensor occupies memory that its
batch has just freed, so no later batch fits there, and evaluation ends up with as much memory as all its data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import torch


@final
class JoinedOutputs:
    """The outputs of the batches so far, on the CPU: tensors, or lists and mappings of tensors.

    >>> joined = JoinedOutputs(batches=2)
    >>> joined.add({"a": torch.zeros(2, 3)})
    >>> joined.add({"a": torch.ones(1, 3)})
    >>> joined.all()["a"].shape
    torch.Size([3, 3])
    """

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._parts: Any = None

    def add(self, value: Any) -> None:
        """Add the output of one batch."""
        self._parts = self._append(self._parts, value)

    def all(self) -> Any:
        """Return all outputs, in order."""
        return _whole(self._parts)

    def _append(self, parts: Any, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            rows = parts if parts is not None else _Rows(self._batches)
            rows.append(value.detach())
            return rows
        if isinstance(value, tuple | list):
            known = parts if parts is not None else (None,) * len(value)
            return tuple(self._append(part, item) for part, item in zip(known, value, strict=True))
        if isinstance(value, Mapping):
            known = parts if parts is not None else {}
            return {name: self._append(known.get(name), item) for name, item in value.items()}
        return [*(parts or []), value]


@final
class _Rows:
    """Rows in one tensor with room for all batches, if they are as long as the first."""

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._length = 0
        self._buffer: torch.Tensor | None = None

    def append(self, part: torch.Tensor) -> None:
        part = part if part.ndim else part[None]
        end = self._length + len(part)
        buffer = self._buffer
        if buffer is None:
            buffer = torch.empty((len(part) * self._batches, *part.shape[1:]), dtype=part.dtype)
        dtype = torch.promote_types(buffer.dtype, part.dtype)
        if end > len(buffer) or dtype != buffer.dtype:
            grown = torch.empty((max(end, 2 * len(buffer)), *buffer.shape[1:]), dtype=dtype)
            grown[: self._length] = buffer[: self._length]
            buffer = grown
        buffer[self._length : end] = part
        self._buffer, self._length = buffer, end

    def whole(self) -> torch.Tensor:
        assert self._buffer is not None
        return self._buffer[: self._length]


def _whole(parts: Any) -> Any:
    if isinstance(parts, _Rows):
        return parts.whole()
    if isinstance(parts, tuple):
        return tuple(_whole(part) for part in parts)
    if isinstance(parts, dict):
        return {name: _whole(part) for name, part in parts.items()}
    return parts
