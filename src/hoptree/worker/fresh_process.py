"""Trains one trial in a process of its own, which a starter starts with one descriptor, CHANNEL.

Nothing that another trial left in memory can affect it: no module that two models share, no global variable that
training changes. So the result depends only on the trial's config, seed, code and data.
"""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import msgspec

from hoptree.core.schedules import Scalar
from hoptree.worker.children import close_in_children, end_children_after_worker
from hoptree.worker.memory import keep_memory

if TYPE_CHECKING:
    from hoptree.trainers.base import UnitSpec


class FreshProcessSetup(msgspec.Struct, frozen=True):
    """The trial to train; ``trainer`` is a cloudpickle and ``units`` are msgpack, over a private channel."""

    paths: list[str]
    folder: str
    trainer: bytes
    dataset: str
    values: dict[str, Scalar]
    seed: int
    units: msgspec.Raw
    evaluated: dict[str, Scalar]
    gpu: str = ""  # the value of CUDA_VISIBLE_DEVICES; "": leave it as it is


class FreshProcessResult(msgspec.Struct, frozen=True):
    """The fingerprint of the state and its metrics, or the error of the user's code."""

    fingerprint: str = ""
    metrics: dict[str, float] = {}
    error: str = ""


def main(descriptor: int) -> None:
    """Train, send the result, and exit."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    channel: Connection[Any, Any] = Connection(descriptor)
    setup = msgspec.msgpack.decode(channel.recv_bytes(), type=FreshProcessSetup)
    if setup.gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = setup.gpu  # CUDA reads it later; see hoptree.worker.__main__
    end_children_after_worker()
    close_in_children(descriptor)
    keep_memory()
    os.chdir(setup.folder)
    sys.path[:] = setup.paths
    from hoptree.worker.tracebacks import user_traceback

    try:
        result = _train(setup)
    except (Exception, SystemExit) as error:
        result = FreshProcessResult(error=user_traceback(error))
    channel.send_bytes(msgspec.msgpack.encode(result))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _train(setup: FreshProcessSetup) -> FreshProcessResult:
    import cloudpickle

    from hoptree.data import Dataset
    from hoptree.store import fingerprint
    from hoptree.trainers.base import UnitSpec
    from hoptree.trainers.plain_numbers import as_number

    trainer, data = cloudpickle.loads(setup.trainer), Dataset.open(setup.dataset)
    units: list[UnitSpec] = msgspec.msgpack.decode(setup.units, type=list[UnitSpec])
    model = trainer.build(setup.values, setup.seed)
    for unit in units:
        trainer.train(model, data.partition(unit.partition), unit)
    state = fingerprint(trainer.dump(model).arrays)
    valid = data.valid()
    metrics = {} if valid is None else trainer.evaluate(model, valid, setup.evaluated)
    return FreshProcessResult(state, {name: as_number(name, value) for name, value in metrics.items()})


if __name__ == "__main__":
    main(int(sys.argv[1]))
