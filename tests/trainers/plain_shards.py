"""A unit with shards, written from ``docs/order-and-seeds.md`` alone, without Hoptree's training loop.

The shards of a batch are computed in reverse order, which must not matter, and all of their gradients are kept.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from tests.identity.plain_loop import seed, set_generators


def train(module, optimizer, data, unit, *, size, shards, loss, accumulate=1, clip=None, transform=None):
    """Train a unit in place."""
    order = np.random.Generator(np.random.PCG64(unit.shuffle_seed)).permutation(len(data["x"]))
    module.train()
    batches = [order[start : start + size] for start in range(0, len(order), size)]
    for first in range(0, len(batches), accumulate):
        step = batches[first : first + accumulate]
        total = sum(map(len, step))
        gradients = None
        for number, batch in enumerate(step, first):
            count = min(shards, max(1, len(batch) // min(2, size // shards)))
            parts = [(torch.tensor(data["x"][rows]), torch.tensor(data["y"][rows])) for rows in split(batch, count)]
            seeds = [seed("shard", unit.seed, number, shard) for shard in range(count)]
            found = batch_gradients(module, parts, seeds, total, loss, transform)
            gradients = found if gradients is None else add(gradients, found)
            set_generators(seed("shard", unit.seed, number, shards))
        for parameter, gradient in zip(module.parameters(), gradients, strict=True):
            parameter.grad = gradient
        if clip is not None:
            scale([gradient for gradient in gradients if gradient is not None], clip)
        optimizer.step()
        optimizer.zero_grad()


def split(batch, count):
    """Cut a batch into consecutive parts; the first ones have one example more."""
    each, larger = divmod(len(batch), count)
    found = []
    for part in range(count):
        length = each + (part < larger)
        found.append(batch[:length])
        batch = batch[length:]
    return found


def batch_gradients(module, parts, seeds, total, loss, transform):
    begun = {name: buffer.clone() for name, buffer in module.named_buffers()}
    gradients, buffers = {}, {}
    for shard in reversed(range(len(parts))):
        for name, buffer in module.named_buffers():
            buffer.copy_(begun[name])
        set_generators(seeds[shard])
        x, y = parts[shard]
        rows = len(x)
        x, y = (x, y) if transform is None else transform(x, y, {})
        value = loss(module(x), y) * (rows / total)
        gradients[shard] = torch.autograd.grad(value, list(module.parameters()), allow_unused=True)
        buffers[shard] = {name: buffer.clone() for name, buffer in module.named_buffers()}
    rows = [len(x) for x, _ in parts]
    for name, buffer in module.named_buffers():
        after = [buffers[shard][name] for shard in range(len(parts))]
        if all(torch.equal(each, after[0]) for each in after):
            buffer.copy_(after[0])
        else:
            (average,) = tree([[each * (count / sum(rows))] for each, count in zip(after, rows, strict=True)])
            buffer.copy_(average)
    return tree([gradients[shard] for shard in range(len(parts))])


def tree(leaves):
    if len(leaves) == 1:
        return leaves[0]
    half = 1 << ((len(leaves) - 1).bit_length() - 1)
    return add(tree(leaves[:half]), tree(leaves[half:]))


def add(left, right):
    return [two if one is None else one if two is None else one + two for one, two in zip(left, right, strict=True)]


def scale(gradients, clip):
    squared = 0.0
    for gradient in gradients:
        norm = torch.linalg.vector_norm(gradient).item()
        squared += norm * norm
    factor = clip / (math.sqrt(squared) + 1e-6)
    if factor < 1:
        for gradient in gradients:
            gradient.mul_(factor)
