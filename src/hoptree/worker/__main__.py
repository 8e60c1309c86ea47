"""A worker process, which a starter runs with two descriptors, CHANNEL and HEARTBEAT; first, it reads its setup."""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hoptree.worker.children import close_in_children, end_children_after_worker
from hoptree.worker.heartbeat import start_heartbeat
from hoptree.worker.limits import limit_memory, memory_advice
from hoptree.worker.memory import keep_memory
from hoptree.worker.output import survive_closed_output

if TYPE_CHECKING:
    from hoptree.worker.loop import WorkerLoop


class WorkerSetup(msgspec.Struct, frozen=True):
    """The first message to a worker; ``trainer`` is a cloudpickle over a private channel."""

    name: str
    paths: list[str]
    folder: str
    threads: int  # of math libraries, which read it when they are imported: its starter sets it
    trainer: bytes
    dataset: str
    states: str
    slots: list[str]
    heartbeat: float  # seconds between two heartbeats
    gpu: str = ""  # the value of CUDA_VISIBLE_DEVICES; "": leave it as it is
    memory: int = 0  # the limit in bytes; 0: none


def main(descriptor: int, heartbeat: int) -> None:
    """Set up and serve the driver."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles Ctrl-C
    channel: Connection[Any, Any] = Connection(descriptor)
    setup = msgspec.msgpack.decode(channel.recv_bytes(), type=WorkerSetup)
    if setup.gpu:
        # CUDA reads this when it is initialized, which torch does at the first use of a GPU. A starter has imported
        # torch but has never used or counted GPUs (a test checks that), so a fork of it is not too late.
        os.environ["CUDA_VISIBLE_DEVICES"] = setup.gpu
    end_children_after_worker()  # before any thread starts
    close_in_children(descriptor, heartbeat)
    start_heartbeat(heartbeat, setup.heartbeat)
    survive_closed_output()
    keep_memory()
    os.chdir(setup.folder)
    sys.path[:] = setup.paths
    from hoptree.core.errors import RefusedError
    from hoptree.data.errors import DataChangedError
    from hoptree.worker.messages import SetupRefused, encode
    from hoptree.worker.tracebacks import user_traceback

    try:
        loop = _loop(channel, setup)
    except (DataChangedError, RefusedError) as error:
        channel.send_bytes(encode(SetupRefused(str(error))))
        sys.exit(1)
    except MemoryError:
        channel.send_bytes(encode(SetupRefused(f"trainer: a worker cannot load it: {memory_advice()}")))
        sys.exit(1)
    except Exception as error:
        channel.send_bytes(encode(SetupRefused(f"trainer: a worker cannot load it:\n{user_traceback(error)}")))
        sys.exit(1)
    loop.serve()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # skip the second that frameworks need to shut down


def _loop(channel: Connection[Any, Any], setup: WorkerSetup) -> WorkerLoop:
    import cloudpickle

    from hoptree.data import Dataset
    from hoptree.store.states import open_states
    from hoptree.worker.loop import WorkerLoop

    limit_memory(setup.memory)
    trainer = cloudpickle.loads(setup.trainer)
    trainer.check_machine()
    slots = [Path(folder) for folder in setup.slots]
    return WorkerLoop(channel, trainer, Dataset.open(setup.dataset), open_states(setup.states), slots, setup.name)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
