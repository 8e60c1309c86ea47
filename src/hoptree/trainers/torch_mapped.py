"""Tensors in mapped files: they do not count as memory of the process, and their pages can be given back.

A file has no name, so its space is free as soon as nothing refers to the tensor. ``TMPDIR`` chooses the disk.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules.module import register_module_parameter_registration_hook

from hoptree.trainers.errors import TrainerError

SMALL = 1 << 16  # bytes: tensors below stay in memory, since a file takes whole pages and system calls
_DONTNEED = 4  # MADV_DONTNEED: unmap the pages; those of a shared mapping stay in the file


def mapped_like(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same shape, type and order in memory; its content is zero."""
    handle, path = tempfile.mkstemp(prefix="hoptree-tensor-")
    try:
        os.posix_fallocate(handle, 0, tensor.nbytes)  # a full disk would kill the process when it writes a page
        flat = torch.from_file(path, shared=True, size=tensor.numel(), dtype=tensor.dtype)
    except OSError as error:
        raise TrainerError(
            f"offload: there is no room for {tensor.nbytes / 1e6:.1f} MB in {tempfile.gettempdir()}: "
            f"{error.strerror}; free some, or set the environment variable TMPDIR to a folder on a larger disk"
        ) from None
    finally:
        os.close(handle)
        os.unlink(path)
    return flat.as_strided(tensor.size(), torch.empty_like(tensor, device="meta").stride())


def mapped(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy in a mapped file; a tensor that is small, or mapped already, as it is."""
    if tensor.nbytes < SMALL or is_mapped(tensor):
        return tensor
    with torch.no_grad():
        copy = mapped_like(tensor)
        copy.copy_(tensor)
    unmap_pages(copy)
    return copy


def is_mapped(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is in a mapped file."""
    return tensor.untyped_storage().filename is not None


def unmap_pages(tensor: torch.Tensor) -> None:
    """Let the process give back the pages of a mapped tensor; reading it maps them again."""
    storage = tensor.untyped_storage()
    if storage.filename is not None and storage.nbytes():  # private memory would lose its content
        _madvise()(storage.data_ptr(), storage.nbytes(), _DONTNEED)


@contextmanager
def mapped_parameters() -> Iterator[None]:
    """Put the parameters of modules that are created into mapped files."""
    last: list[nn.Parameter] = []
    make_weak: Any = StorageWeakRef  # torch declares no types for it
    moved: dict[int, Any] = {}  # the memory that parameters had before

    def register(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is None or nn.parameter.is_lazy(parameter) or parameter.layout is not torch.strided:
            return
        for before in last:  # its module has initialized it by now
            unmap_pages(before)
        if parameter.nbytes < SMALL or is_mapped(parameter.data):
            return
        memory = make_weak(parameter.data.untyped_storage())
        if memory.cdata in moved and not moved[memory.cdata].expired():
            raise TrainerError(
                f"offload: the parameter {name!r} of a {type(module).__name__} shares its memory with another one; "
                "expected parameters with memory of their own; to share one, assign the same nn.Parameter twice"
            )
        moved[memory.cdata] = memory
        parameter.data = mapped(parameter.data)  # the same object, which other modules may share
        last[:] = [*last[-3:], parameter]

    handle = register_module_parameter_registration_hook(register)
    try:
        yield
    finally:
        handle.remove()


def map_state(slots: dict[str, Any]) -> None:
    """Move the large tensors of an optimizer's state for one parameter into mapped files."""
    for name, value in slots.items():
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            slots[name] = mapped(value)


def unmap_all(tensors: Iterable[Any]) -> None:
    """Give back the pages of all mapped tensors among some values."""
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
            unmap_pages(tensor)


@cache
def _madvise() -> Callable[[int, int, int], int]:
    function = ctypes.CDLL(None).madvise
    function.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    found: Callable[[int, int, int], int] = function
    return found
