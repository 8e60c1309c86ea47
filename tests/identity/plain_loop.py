"""A training loop without Hoptree, written from ``docs/order-and-seeds.md`` alone: ``python plain_loop.py JOB``.

It uses torch, numpy, hashlib, and pyarrow to read the rows of a partition. JOB is a file with what the page calls
the inputs; schedules are written as lists, such as ["multistep", 0.1, [2], 0.5]. It prints the fingerprint of the
trained state and the metrics of every epoch.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pyarrow import ipc
from torch import nn

NEAR = 1e-9


class Net(nn.Module):
    """A small CNN with batch normalisation and dropout."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, 2 * width, 3, stride=2)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(2 * width * 9, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.first(x)))
        return self.head(self.dropout(torch.relu(self.second(x)).flatten(1)))


def net(hp: Any) -> nn.Module:
    return Net(hp["width"], hp["dropout"])


# --- keys and seeds -----------------------------------------------------------------------------------------


def count(number: int) -> bytes:
    return number.to_bytes(4, "big")


def encode(value: Any) -> bytes:
    match value:
        case None:
            return b"N"
        case bool():
            return b"T" if value else b"F"
        case int():
            content = value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)
            return b"i" + count(len(content)) + content
        case float():
            return b"f" + struct.pack(">d", value + 0.0)
        case str():
            return b"s" + count(len(value.encode())) + value.encode()
        case bytes():
            return value  # encoded already
    return b"(" + count(len(value)) + b"".join(map(encode, value))


def record(tag: bytes, *parts: bytes) -> bytes:
    return b"<" + count(len(tag)) + tag + count(len(parts)) + b"".join(parts)


def digest(purpose: str, *parts: Any) -> bytes:
    return hashlib.blake2b(f"hoptree/1/{purpose}\0".encode() + encode(parts), digest_size=16).digest()


def key(purpose: str, *parts: Any) -> str:
    return digest(purpose, *parts).hex()


def seed(purpose: str, *parts: Any) -> int:
    return int.from_bytes(digest(purpose, *parts)[:8], "big") >> 1


# --- values -------------------------------------------------------------------------------------------------

Form = tuple[str, tuple[Any, ...]]


def line(o: float, a: float, b: float, over: float) -> Form:
    slope = (b - a) / over
    return ("linear", (o, float(a), slope)) if slope else ("constant", (float(a),))


def pieces(schedule: Any, o: float, end: float) -> list[tuple[float, Form]]:
    """Return the pieces of a schedule that start before an epoch."""
    match schedule:
        case ["linear", a, b, over]:
            found = [(o, line(o, a, b, over)), (o + over, ("constant", (float(b),)))]
        case ["exponential", a, g]:
            found = [(o, ("exponential", (o, float(a), float(g))))]
        case ["multistep", a, at, g]:
            found = [(o, ("constant", (a,)))]
            for k, milestone in enumerate(at):
                value = a * g ** (k + 1) + 0
                whole = isinstance(a, int) and float(value).is_integer()
                found.append((o + milestone, ("constant", (int(value) if whole else value,))))
        case ["cosine", a, b, p, g]:
            found = []
            while o < end:
                found.append((o, ("cosine", (o, float(a), float(b), float(p)))))
                o, p = o + p, p * g
        case ["warmup", a, p, into]:
            target = into if not isinstance(into, list) else value_at(pieces(into, 0.0, 1.0)[0][1], 0.0)
            found = [(o, line(o, a, target, p)), *pieces(into, o + p, end)]
        case _:
            found = [(o, ("constant", (schedule,)))]
    joined: list[tuple[float, Form]] = []
    for start, form in found:
        if start < end and (not joined or joined[-1][1] != form):
            joined.append((start, form))
    return joined


def value_at(form: Form, t: float) -> Any:
    match form:
        case "constant", (v,):
            return v
        case "linear", (o, a, slope):
            return a + slope * (t - o)
        case "exponential", (o, a, g):
            return a * g ** (t - o)
        case "cosine", (o, a, b, p):
            return b + (a - b) * (1 + math.cos(math.pi * (t - o) / p)) / 2
    raise ValueError(form)


def content(row: list[tuple[float, Form]], unit: int, partitions: int) -> list[Any]:
    """Return the form that holds when a unit starts, and the boundaries and forms within it."""
    found: list[Any] = []
    for start, form in row:
        exact = start * partitions
        place = float(round(exact)) if abs(exact - round(exact)) <= NEAR else exact
        if place <= unit:
            found = [form]
        elif place < unit + 1:
            found += [start, form]
    return found


def encode_values(contents: dict[str, list[Any]]) -> bytes:
    named = []
    for name, parts in contents.items():
        encoded = [
            encode(part) if isinstance(part, float) else record(b"form", encode(part[0]), encode(part[1]))
            for part in parts
        ]
        named.append((encode(name), record(b"content", *encoded)))
    return record(b"values", *(name + written for name, written in sorted(named)))


def now(contents: dict[str, list[Any]], t: float) -> dict[str, Any]:
    """Return all values at a progress."""
    found = {}
    for name, parts in contents.items():
        form = parts[0]
        for boundary, later in zip(parts[1::2], parts[2::2], strict=True):
            form = later if t >= boundary else form
        found[name] = value_at(form, t)
    return found


# --- training -----------------------------------------------------------------------------------------------


def set_generators(number: int) -> None:
    random.seed(number)
    np.random.seed(number % 2**32)
    torch.manual_seed(number % 2**63)


def rows(path: Path) -> tuple[np.ndarray, np.ndarray]:
    with pa.memory_map(str(path)) as source:
        batch = ipc.open_file(source).get_batch(0)
    x = batch.column("x")
    shape = x.type.shape
    return x.storage.flatten().to_numpy().reshape(-1, *shape), batch.column("y").to_numpy()


def tensor(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """Copy rows into memory that torch allocated."""
    return torch.tensor(array, dtype=dtype)


def train_unit(
    module: nn.Module, optimizer: Any, contents: dict[str, list[Any]], unit: int, job: dict[str, Any]
) -> None:
    partitions, folder = job["partitions"], Path(job["folder"])
    epoch, partition = unit // partitions, job["visits"][unit]
    x, y = rows(folder / f"train-{partition:05d}.arrow")
    shuffle = seed("shuffle", job["seed"], epoch, partition)
    order = np.random.Generator(np.random.PCG64(shuffle)).permutation(len(x))
    set_generators(job["seeds"][unit])
    module.train()
    at = number = 0
    while at < len(x):
        values = now(contents, (unit + at / len(x)) / partitions)
        for group in optimizer.param_groups:
            group.update({name: values[name] for name in ("lr", "momentum", "weight_decay") if name in values})
        module.dropout.p = values["dropout"]
        size = round(values["batch_size"])
        batches = [order[i : i + size] for i in range(at, min(at + size * job["accumulate"], len(x)), size)]
        total = sum(map(len, batches))
        for batch in batches:
            if job["shards"] > 1:
                add_shards(module, x, y, batch, (job["seeds"][unit], number, size, total, job["shards"]))
            else:
                output = module(tensor(x[batch], torch.float32))
                loss = nn.functional.cross_entropy(output, tensor(y[batch], torch.int64))
                (loss if len(batches) == 1 else loss * (len(batch) / total)).backward()
            number += 1
        if job["shards"] > 1:
            clip(module, job["clip"])
        else:
            nn.utils.clip_grad_norm_(module.parameters(), job["clip"])
        optimizer.step()
        optimizer.zero_grad()
        at += total


def add_shards(
    module: nn.Module, x: np.ndarray, y: np.ndarray, batch: np.ndarray, where: tuple[int, int, int, int, int]
) -> None:
    """Add the gradients of a batch that is cut into shards, and average the buffers."""
    unit_seed, number, size, total, shards = where
    count = min(shards, max(1, len(batch) // min(2, size // shards)))
    parameters, buffers = list(module.parameters()), list(module.buffers())
    begun = [buffer.clone() for buffer in buffers]
    gradients, after, parts = [], [], np.array_split(batch, count)
    for shard, part in enumerate(parts):
        for buffer, before in zip(buffers, begun, strict=True):
            buffer.copy_(before)
        set_generators(seed("shard", unit_seed, number, shard))
        output = module(tensor(x[part], torch.float32))
        loss = nn.functional.cross_entropy(output, tensor(y[part], torch.int64))
        gradients.append(torch.autograd.grad(loss * (len(part) / total), parameters))
        after.append([buffer.clone() for buffer in buffers])
    set_generators(seed("shard", unit_seed, number, shards))
    for index, parameter in enumerate(parameters):
        added = tree([gradient[index] for gradient in gradients])
        parameter.grad = added if parameter.grad is None else parameter.grad + added
    for index, buffer in enumerate(buffers):
        found = [each[index] for each in after]
        weighted = [each * (len(part) / len(batch)) for each, part in zip(found, parts, strict=True)]
        buffer.copy_(found[0] if all(torch.equal(each, found[0]) for each in found) else tree(weighted))


def tree(leaves: list[torch.Tensor]) -> torch.Tensor:
    if len(leaves) == 1:
        return leaves[0]
    half = 1 << ((len(leaves) - 1).bit_length() - 1)
    return tree(leaves[:half]) + tree(leaves[half:])


def clip(module: nn.Module, most: float) -> None:
    squared = 0.0
    for parameter in module.parameters():
        norm = torch.linalg.vector_norm(parameter.grad).item()
        squared += norm * norm
    factor = most / (math.sqrt(squared) + 1e-6)
    if factor < 1:
        for parameter in module.parameters():
            parameter.grad.mul_(factor)


def evaluate(module: nn.Module, folder: Path) -> dict[str, float]:
    x, y = rows(folder / "valid.arrow")
    module.eval()
    with torch.no_grad():
        parts = [module(tensor(x[i : i + 256], torch.float32)) for i in range(0, len(x), 256)]
        output, target = torch.cat(parts), tensor(y, torch.int64)
        loss = nn.functional.cross_entropy(output, target).item()
    return {"loss": loss, "accuracy": int((output.argmax(-1) == target).sum()) / len(target)}


def fingerprint(module: nn.Module, optimizer: Any) -> str:
    arrays = {f"model.{name}": value for name, value in module.state_dict().items()}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, parameter in enumerate(parameters):
        for name, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, torch.Tensor):
                arrays[f"optimizer.{index}.{name}"] = value
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name].detach().numpy()
        total.update(json.dumps([name, array.dtype.name, list(array.shape)]).encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def run(job: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("highest")
    partitions, units = job["partitions"], job["epochs"] * job["partitions"]
    row = {name: pieces(value, 0.0, units / partitions) for name, value in job["config"].items()}
    contents = [{name: content(row[name], unit, partitions) for name in row} for unit in range(units)]
    lineage = key("root", key("study", job["trainer"], job["data"], job["seed"]), partitions, "strict")
    lineages: list[str] = []
    for unit in range(units):
        if not unit or contents[unit] != contents[unit - 1]:
            lineage = key("lineage", lineage, unit, encode_values(contents[unit]))
        lineages.append(lineage)
    job["seeds"] = [seed("unit", lineages[unit], unit) for unit in range(units)]
    rotations = [seed("rotation", lineages[unit - unit % partitions]) % partitions for unit in range(units)]
    job["visits"] = [(rotations[unit] + unit) % partitions for unit in range(units)]
    set_generators(seed("build", lineages[0]))
    first = now(contents[0], 0.0)
    module = net(first)
    options = {name: first[name] for name in ("lr", "momentum", "weight_decay") if name in first}
    optimizer = torch.optim.SGD(module.parameters(), fused=True, **options)
    curve = {}
    for unit in range(units):
        train_unit(module, optimizer, contents[unit], unit, job)
        if (unit + 1) % partitions == 0:
            curve[(unit + 1) // partitions] = evaluate(module, Path(job["folder"]))
    return {"fingerprint": fingerprint(module, optimizer), "curve": curve, "visits": job["visits"]}


if __name__ == "__main__":
    print(json.dumps(run(json.loads(Path(sys.argv[1]).read_text()))))
    assert not [name for name in sys.modules if name.partition(".")[0] == "hoptree"]
