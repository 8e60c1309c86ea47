"""The stages of a pipeline: which consecutive layers of a model each worker has."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import nn

from hoptree.trainers.errors import TrainerError
from hoptree.trainers.torch_model import TorchModel, evaluating
from hoptree.trainers.torch_offload import pages_given_back, separable
from hoptree.trainers.torch_part import EVERY, shared_memory
from hoptree.trainers.torch_recompute import is_sequence
from hoptree.trainers.torch_session import preserved_generators


class LayerCost(NamedTuple):
    """What a layer takes, and whether the next one may be on another worker."""

    seconds: float
    size: int  # bytes of parameters and of activations
    may_end: bool


def layers(module: nn.Module) -> list[nn.Module]:
    """Return the layers of a model that calls them one after the other; empty for another model.

    A layer that is called several times is there as often.
    """
    if not is_sequence(module):
        return []
    assert isinstance(module, nn.Sequential)
    return [layer for child in module for layer in (layers(child) or [child])]


def measure(found: Sequence[nn.Module], inputs: Sequence[Any]) -> list[LayerCost]:
    """Call the layers once with some examples; leave them as they are.

    A stage may end after a layer that returns one tensor with a gradient, and that shares no parameter or module
    with a later layer.
    """
    costs: list[LayerCost] = []
    root = nn.ModuleList(found)
    value: Any = inputs[0] if len(inputs) == 1 else tuple(inputs)
    kept = [(each, each.clone()) for each in root.buffers()]
    with preserved_generators(), evaluating(root), pages_given_back(root), torch.enable_grad():
        for layer in found:
            began = time.perf_counter()
            given, value = value, layer(value)
            seconds = time.perf_counter() - began
            if costs and isinstance(given, torch.Tensor) and given._version:
                costs[-1] = costs[-1]._replace(may_end=False)  # it changes its input in place
            one = isinstance(value, torch.Tensor) and value.requires_grad and value.layout is torch.strided
            size = sum(each.nbytes for each in layer.parameters()) + (value.nbytes if one else 0)
            costs.append(LayerCost(seconds, size, one))
            value = value.detach().requires_grad_().clone() if one else value
    with torch.no_grad():
        for tensor, before in kept:
            tensor.copy_(before)
    return [cost._replace(may_end=cost.may_end and apart) for cost, apart in zip(costs, _apart(found), strict=True)]


def cut(costs: Sequence[LayerCost], stages: int) -> list[int]:
    """Return the number of the first layer of each stage, so that the largest share of time or memory is least.

    >>> even = LayerCost(1.0, 10, True)
    >>> cut([even, even, even, even], 2)
    [0, 2]
    >>> cut([LayerCost(9.0, 10, True), even, even, even], 2)
    [0, 1]
    """
    count = len(costs)
    times = [0.0, *accumulate(cost.seconds for cost in costs)]
    sizes = [0.0, *accumulate(float(cost.size) for cost in costs)]

    def load(first: int, last: int) -> float:
        return max(_share(times, first, last), _share(sizes, first, last))

    best: list[dict[int, tuple[float, list[int]]]] = [{count: (0.0, [])}]
    for _ in range(stages):
        now: dict[int, tuple[float, list[int]]] = {}
        for first in range(count - 1, -1, -1):
            if first and not costs[first - 1].may_end:
                continue
            options = [
                (max(load(first, last), worst), [first, *starts])
                for last, (worst, starts) in best[-1].items()
                if last > first
            ]
            if options:
                now[first] = min(options)
        best.append(now)
    if 0 not in best[-1]:
        raise TrainerError(_too_few(stages, sum(cost.may_end for cost in costs[:-1])))
    return best[-1][0][1]


def owners(module: nn.Module, starts: Sequence[int]) -> list[int]:
    """Return the stage of each parameter of the module."""
    stage_of: dict[int, int] = {}
    for stage, own in enumerate(stages(layers(module), starts)):
        for layer in own:
            stage_of.update((id(parameter), stage) for parameter in layer.parameters())
    return [stage_of.get(id(parameter), EVERY) for parameter in module.parameters()]


def stages(found: Sequence[nn.Module], starts: Sequence[int]) -> list[list[nn.Module]]:
    """Return the layers of each stage."""
    ends = [*starts[1:], len(found)]
    return [list(found[start:end]) for start, end in zip(starts, ends, strict=True)]


def refusal(model: TorchModel, shards: int) -> str:
    """Return "" if a model can be trained as a pipeline, else why not."""
    if shards < 2:
        return "it needs shards=2 or more: a pipeline has several of them under way"
    found = layers(model.module)
    if not found:
        kind = type(model.module).__name__
        return (
            f"the model is a {kind}; expected an nn.Sequential without hooks, whose layers run one after the other"
        )
    if sum(any(True for _ in layer.parameters()) for layer in found) < 2:
        return _too_few(2, 0)
    if model.tuned.needs_closure:
        return f"the optimizer {type(model.tuned.optimizer).__name__} calls the model in its step"
    return separable(model.tuned.optimizer) or shared_memory(model.module)


def _apart(found: Sequence[nn.Module]) -> list[bool]:
    """Return for each layer whether it and all before it share nothing with the layers after it.

    Layers of torch without tensors, such as activations, have no state: each worker has its own.
    """
    own = [
        {
            *(id(part) for part in layer.modules() if not _is_stateless(part)),
            *(id(tensor) for tensor in (*layer.parameters(), *layer.buffers())),
        }
        for layer in found
    ]
    after: list[set[int]] = [set() for _ in found]
    for number in range(len(found) - 2, -1, -1):
        after[number] = after[number + 1] | own[number + 1]
    before: set[int] = set()
    result = []
    for number, parts in enumerate(own):
        before |= parts
        result.append(not before & after[number])
    return result


def _is_stateless(part: nn.Module) -> bool:
    own = type(part).__module__.startswith("torch.nn.modules.")
    return own and not (part._parameters or part._buffers or part._modules)


def _share(sums: Sequence[float], first: int, last: int) -> float:
    return (sums[last] - sums[first]) / (sums[-1] or 1.0)


def _too_few(stages: int, places: int) -> str:
    return (
        f"layout: 'pipeline' with {stages} workers, but the model can be cut at {places} places; expected an "
        "nn.Sequential whose layers return one tensor each, with at least as many layers with parameters as workers"
    )


Call = Callable[[Any], Any]


def chained(own: Iterable[nn.Module]) -> Call:
    """Return a function that calls layers one after the other."""
    found = list(own)

    def call(value: Any) -> Any:
        for layer in found:
            value = layer(value)
        return value

    return call
