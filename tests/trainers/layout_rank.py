"""A process that is a rank of gangs: it trains units in layouts, and writes states."""

from __future__ import annotations

import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

import msgspec

from hoptree.core.layouts import Layout
from hoptree.trainers import torch_gang, torch_mapped, torch_part
from hoptree.trainers.gang import GangMember, ModelPlacement
from tests.trainers import digits, layout_nets


class Task(msgspec.Struct):
    """Train some units of a net as a rank, from a state or from the beginning; the leader writes the new state."""

    options: dict[str, Any]
    values: dict[str, Any]
    units: list[int]
    layout: str
    source: str
    target: str
    member: GangMember | None = None


def carry_out(task: Task) -> None:
    trainer = layout_nets.trainer(**task.options)
    layout = Layout.parse(task.layout)
    rank, size = (task.member.rank, task.member.size) if task.member is not None else (0, 1)
    if task.layout in ("single", "data"):
        model = trainer.build(task.values, 7)
    else:
        model = trainer.build_part(task.values, 7, ModelPlacement(layout, rank, size))
    if task.source:
        trainer.load(model, pickle.loads(Path(task.source).read_bytes()))
    config = layout_nets.config(task.values)
    for number in task.units:
        data, unit = digits.partition(number % digits.PARTITIONS), digits.unit(config, number)
        if task.member is None:
            trainer.train(model, data, unit)
        else:
            trainer.train_together(model, data, unit, task.member)
    state = trainer.dump(model)
    if rank == 0:
        metrics = trainer.evaluate(model, digits.partition(-1), task.values)
        Path(task.target).write_bytes(pickle.dumps((state, metrics)))


def main() -> None:
    torch_mapped.SMALL = torch_part.SMALL = int(sys.argv[1])
    print(torch_gang.open_rendezvous("127.0.0.1"), flush=True)
    for line in sys.stdin:
        try:
            carry_out(msgspec.json.decode(line, type=Task))
        except Exception as error:
            text = str(error) or traceback.format_exc()
            print(msgspec.json.encode(f"{type(error).__name__}: {text}").decode(), flush=True)
        else:
            print('""', flush=True)


if __name__ == "__main__":
    main()
