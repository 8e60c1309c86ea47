"""What the stages of a pipeline send each other: tensors with the states of generators, errors, buffers.

A tensor arrives with the strides that it had, since a kernel may add the same numbers in another order where memory
is laid out differently.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from hoptree.trainers.errors import TrainerError
from hoptree.trainers.torch_encoding import pack, unpack
from hoptree.trainers.torch_gang import Gang
from hoptree.trainers.torch_part import dense

_DIMENSIONS = 8
_FAILED = -1
_DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128,
)  # fmt: skip
_WORDS = 625  # of the state of Python's generator


def send_tensor(gang: Gang, rank: int, tensor: torch.Tensor, *, with_generators: bool) -> Callable[[], None]:
    """Begin to send a tensor to the next or previous stage; return a function that waits until it is sent."""
    if tensor.dtype not in _DTYPES or tensor.dim() > _DIMENSIONS:
        raise TrainerError(
            f"layout: 'pipeline' cannot pass on a tensor of type {tensor.dtype} with {tensor.dim()} dimensions; "
            f"expected floating-point numbers with at most {_DIMENSIONS}"
        )
    shape, repeated = list(tensor.shape), [size > 1 and step == 0 for size, step in _sizes(tensor)]
    for place, each in enumerate(repeated):
        if each:
            tensor = tensor.narrow(place, 0, 1)
    if not torch.ops.aten.is_non_overlapping_and_dense(tensor):
        tensor = tensor.contiguous()
    strides = [0 if each else step for each, step in zip(repeated, tensor.stride(), strict=True)]
    fill = [0] * (_DIMENSIONS - len(shape))
    header = torch.tensor([_DTYPES.index(tensor.dtype), len(shape), *shape, *fill, *strides, *fill])
    waits = [gang.send_later(header, rank), gang.send_later(dense(tensor), rank)]
    if with_generators:
        waits.append(gang.send_later(_generators(), rank))

    def wait() -> None:
        for each in waits:
            each()

    return wait


def receive_tensor(gang: Gang, rank: int, *, with_generators: bool) -> torch.Tensor | str:
    """Return the tensor that a stage has sent, or its error; set the generators to the states that come along."""
    header = torch.zeros(2 + 2 * _DIMENSIONS, dtype=torch.int64)
    gang.receive(header, rank)
    kind, dimensions, *rest = header.tolist()
    if kind == _FAILED:
        return gang.receive_text(rank)
    shape, strides = rest[:dimensions], rest[_DIMENSIONS : _DIMENSIONS + dimensions]
    pairs = list(zip(shape, strides, strict=True))
    repeated = [size > 1 and step == 0 for size, step in pairs]
    small = [1 if again else size for size, again in zip(shape, repeated, strict=True)]
    tensor = torch.empty_strided(small, [max(step, 1) for step in strides], dtype=_DTYPES[kind])
    gang.receive(dense(tensor), rank)
    if with_generators:
        states = torch.empty_like(_generators())
        gang.receive(states, rank)
        _set_generators(states)
    return tensor.expand(shape) if any(repeated) else tensor


def send_error(gang: Gang, rank: int, text: str) -> None:
    """Send the error of the user's code instead of a tensor."""
    gang.send(torch.tensor([_FAILED, *[0] * (1 + 2 * _DIMENSIONS)]), rank)
    gang.send_text(text, rank)


def send_rest(gang: Gang, buffers: Mapping[str, torch.Tensor | None], attributes: Mapping[str, Any]) -> None:
    """Send the buffers and the changed attributes of a stage to the worker that leads."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    packed = {name: pack(name, content, arrays) for name, content in attributes.items()}
    tensors = {name: tensor for name, tensor in buffers.items() if tensor is not None}
    meta = {
        "attributes": packed,
        "arrays": {name: [str(array.dtype), list(array.shape)] for name, array in arrays.items()},
        "tensors": {name: [str(each.dtype)[6:], list(each.shape)] for name, each in tensors.items()},
        "absent": [name for name, tensor in buffers.items() if tensor is None],
    }
    gang.send_text(json.dumps(meta), 0)
    for array in arrays.values():
        gang.send(_bytes_of(array), 0)
    for tensor in tensors.values():
        gang.send(tensor.contiguous(), 0)


def receive_rest(gang: Gang, rank: int) -> tuple[dict[str, torch.Tensor | None], dict[str, Any]]:
    """Return the buffers and the changed attributes of a stage."""
    meta = json.loads(gang.receive_text(rank))
    arrays = {}
    for name, (kind, shape) in meta["arrays"].items():
        arrays[name] = np.empty(shape, dtype=kind)
        content = _bytes_of(arrays[name])
        gang.receive(content, rank)
        arrays[name] = content.numpy()[: arrays[name].nbytes].view(kind).reshape(shape)
    buffers: dict[str, torch.Tensor | None] = dict.fromkeys(meta["absent"])
    for name, (kind, shape) in meta["tensors"].items():
        tensor = torch.empty(shape, dtype=getattr(torch, kind))
        gang.receive(tensor, rank)
        buffers[name] = tensor
    return buffers, {name: unpack(content, arrays) for name, content in meta["attributes"].items()}


def _sizes(tensor: torch.Tensor) -> list[tuple[int, int]]:
    return list(zip(tensor.shape, tensor.stride(), strict=True))


def _bytes_of(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """Return the content as bytes, at least one, which gloo needs."""
    return torch.tensor(np.frombuffer(array.tobytes() or b" ", dtype=np.uint8).copy())


def _generators() -> torch.Tensor:
    """Return the states of the global generators as bytes, always as many."""
    _, words, normal = random.getstate()
    _, keys, place, has_normal, cached = np.random.get_state()
    parts = (
        np.array(words, dtype=np.uint32),
        np.array([0.0 if normal is None else normal, float(normal is not None), float(cached)], dtype=np.float64),
        np.asarray(keys, dtype=np.uint32),
        np.array([place, has_normal], dtype=np.int64),
    )
    own = np.frombuffer(b"".join(part.tobytes() for part in parts), dtype=np.uint8)
    return torch.cat([torch.tensor(own), torch.get_rng_state()])


def _set_generators(states: torch.Tensor) -> None:
    content = states.numpy().tobytes()
    words = np.frombuffer(content, np.uint32, _WORDS)
    at = words.nbytes
    normal, has_normal, cached = np.frombuffer(content, np.float64, 3, at).tolist()
    at += 24
    keys = np.frombuffer(content, np.uint32, 624, at).copy()
    at += keys.nbytes
    place, has_cached = np.frombuffer(content, np.int64, 2, at).tolist()
    at += 16
    random.setstate((3, tuple(words.tolist()), normal if has_normal else None))
    np.random.set_state(("MT19937", keys, place, has_cached, cached))
    torch.set_rng_state(states[at:].clone())
