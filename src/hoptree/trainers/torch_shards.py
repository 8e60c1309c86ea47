"""Shards: the parts of a batch that are computed apart, so that several devices can share the batch.

The number of shards belongs to the training, like the batch size; the number of devices that compute them does not.
So every shard starts from the same parameters, buffers and attributes, has generators of its own, and nothing may
depend on which shards were computed before it. ``docs/order-and-seeds.md`` has all rules.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from hoptree.trainers.errors import TrainerError
from hoptree.trainers.torch_mapped import unmap_all
from hoptree.trainers.torch_tree import Tensors

Bounds = tuple[int, int]  # the first example and the one after the last
_CONSTANT = "; expected a module whose forward changes nothing but buffers"


def check_shards(value: Any) -> int:
    """Return the number of shards; raise an error if it is not a power of two."""
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if whole and value & (value - 1) == 0:
        return int(value)
    lower = 1 << (value.bit_length() - 1) if whole else 2
    raise TrainerError(
        f"shards: {value!r}; expected a power of two, so that 2, 4 or more devices get equal parts of a batch, for "
        f"example {lower} or {2 * lower}"
    )


def check_batch_size(size: int, shards: int) -> None:
    """Raise an error if a whole batch has fewer examples than shards."""
    if size < shards:
        fewer = 1 << (size.bit_length() - 1)
        raise TrainerError(
            f"shards: {shards}, but batch_size is {size}, and every shard of a batch needs an example; use "
            f"batch_size={shards} or more, or shards={fewer}"
        )


def cut(batch: Bounds, shards: int, size: int) -> list[Bounds]:
    """Return the shards of a batch in order; ``size`` is the batch size, which the last batch may not reach.

    Their sizes differ by at most one, larger ones first. A smaller batch is cut into fewer shards of at least two
    examples, because layers such as batch normalization refuse one; of one if whole batches have such shards, too.

    >>> cut((0, 10), 4, 10), cut((10, 15), 4, 10)
    ([(0, 3), (3, 6), (6, 8), (8, 10)], [(10, 13), (13, 15)])
    """
    start, stop = batch
    least = min(2, size // shards)
    parts = min(shards, max(1, (stop - start) // least))
    each, larger = divmod(stop - start, parts)
    edges = [start + each * part + min(part, larger) for part in range(parts + 1)]
    return list(pairwise(edges))


def take_gradients(names: Sequence[str], parameters: Sequence[nn.Parameter]) -> Tensors:
    """Return the gradients of all parameters, and leave the parameters without."""
    gradients = [parameter.grad for parameter in parameters]
    for name, parameter, gradient in zip(names, parameters, gradients, strict=True):
        if gradient is not None and gradient.layout is not torch.strided:
            raise TrainerError(
                f"shards: the gradient of {name!r} is sparse; expected dense gradients, so build its layer without "
                "sparse=True, or use shards=1"
            )
        parameter.grad = None
    return gradients


def gradient_norm(gradient: torch.Tensor) -> float:
    """Return the norm of one parameter's gradient, in double precision."""
    norm = float(torch.linalg.vector_norm(gradient).to(torch.device("cpu"), torch.float64))
    unmap_all([gradient])
    return norm


def clip(gradients: Iterable[torch.Tensor | None], most: float, norms: Sequence[float] | None = None) -> None:
    """Scale gradients in place so that their norm is at most ``most``.

    It is computed from the ``norms`` of whole parameters, in the order of the parameters and in double precision,
    so each may be computed on another device. torch's own function groups parameters by device and type first.
    """
    present = [gradient for gradient in gradients if gradient is not None]
    squared = 0.0
    for norm in [gradient_norm(gradient) for gradient in present] if norms is None else norms:
        squared += norm * norm
    factor = most / (math.sqrt(squared) + 1e-6)
    if present and not factor >= 1.0:  # NaN spreads to all gradients, as with torch's function
        for gradient in present:
            gradient.mul_(factor)
            unmap_all([gradient])


class ConstantParameters:
    """Raises an error if a forward pass changes parameters: later shards would start from other ones.

    Versions are cheap, but miss changes through ``.data``; so ``thorough`` compares the content, too.
    """

    def __init__(self, names: Sequence[str], parameters: Sequence[nn.Parameter], thorough: bool) -> None:
        self._names, self._parameters = names, parameters
        self._versions = [parameter._version for parameter in parameters]
        self._before = [parameter.detach().clone() for parameter in parameters] if thorough else None

    def check(self) -> None:
        """Raise an error that names the first parameter that has changed."""
        for number, (name, parameter) in enumerate(zip(self._names, self._parameters, strict=True)):
            same = parameter._version == self._versions[number]
            if same and self._before is not None:
                same = _same_bits(parameter.detach(), self._before[number])
            if not same:
                raise TrainerError(
                    f"shards: calling the model changes its parameter {name!r}{_CONSTANT}, for example an "
                    "embedding without max_norm=; otherwise use shards=1"
                )


def check_attributes(first: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise an error if two shards of a batch leave different attributes: they would depend on the device."""
    if first == now:
        return
    name = next(name for name in sorted(first.keys() | now.keys()) if first.get(name) != now.get(name))
    layer, _, attribute = name.removeprefix("attribute.").partition(":")
    where = f"layer {layer!r}" if layer else "the module"
    raise TrainerError(
        f"shards: the attribute {attribute or name!r} of {where} differs from shard to shard of a batch"
        f"{_CONSTANT}, so make it a buffer (self.register_buffer), which is averaged over the shards, or return it "
        "from forward; otherwise use shards=1"
    )


def _same_bits(one: torch.Tensor, two: torch.Tensor) -> bool:
    return bool(((one == two) | ((one != one) & (two != two))).all())
