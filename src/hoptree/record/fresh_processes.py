"""Retraining of trials in fresh processes, one per trial: what `verify` compares with.

The caller's process is not used, because earlier training may have changed its modules and globals. Nor does one
process train two trials, as in a run: so they cannot share anything by mistake.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import msgspec

from hoptree.backends.choice import worker_count
from hoptree.backends.devices import gpus_for
from hoptree.backends.processes import make_channel
from hoptree.backends.trainer_pickle import pickle_trainer
from hoptree.backends.worker_starter import modules_of, start_process
from hoptree.core.plan import Trial
from hoptree.trainers.errors import TrainerError
from hoptree.worker.fresh_process import FreshProcessResult, FreshProcessSetup

if TYPE_CHECKING:
    from hoptree.record.retrain import Retrainer


def train_in_fresh_processes(
    retrainer: Retrainer, trials: Mapping[int, Trial]
) -> Iterator[tuple[int, FreshProcessResult]]:
    """Train trials from the start, and yield the results by number, in the order given.

    As many processes run at a time as a run has workers by default. An error of the user's code is
    raised here, with the user's own traceback.
    """
    pickled = pickle_trainer(retrainer.trainer)
    waiting, unyielded = deque(trials), deque(trials)
    most = worker_count(None, retrainer.trainer)
    gpus = deque(gpus_for(retrainer.trainer.device) or [""] * most)  # those that no process uses
    running: dict[Any, _Process] = {}
    done: dict[int, FreshProcessResult] = {}
    try:
        while unyielded:
            while waiting and len(running) < most:
                number = waiting.popleft()
                setup = _setup(retrainer, trials[number], pickled, gpus.popleft())
                process = _Process(number, setup, retrainer.trainer.threads)
                running[process.channel] = process
            for channel in wait(list(running)):
                process = running.pop(channel)
                gpus.append(process.gpu)
                done[process.number] = process.result()
            while unyielded and unyielded[0] in done:
                number = unyielded.popleft()
                yield number, done.pop(number)
    finally:
        for process in running.values():
            process.kill()


def _setup(retrainer: Retrainer, trial: Trial, trainer: bytes, gpu: str) -> FreshProcessSetup:
    values, seed = retrainer.beginning(trial)
    units = retrainer.units(trial)
    last = units[-1]
    return FreshProcessSetup(
        paths=sys.path,
        folder=str(Path.cwd()),
        trainer=trainer,
        dataset=str(retrainer.data.path),
        values=values,
        seed=seed,
        units=msgspec.Raw(msgspec.msgpack.encode(units)),
        evaluated=last.values.at((last.unit + 1) / last.partitions),
        gpu=gpu,
    )


@final
class _Process:
    def __init__(self, number: int, setup: FreshProcessSetup, threads: int) -> None:
        self.number = number
        self.gpu = setup.gpu
        ours, theirs = make_channel()
        self._process = start_process(
            "hoptree.worker.fresh_process",
            [theirs],
            modules=modules_of(setup.trainer),
            threads=threads,
            turn=number,
            purpose="verify",
        )
        theirs.close()
        self.channel: Connection[Any, Any] = Connection(ours.detach())
        with suppress(OSError):  # it has exited already
            self.channel.send_bytes(msgspec.msgpack.encode(setup))

    def result(self) -> FreshProcessResult:
        """Return its result, and end the process."""
        try:
            answer = msgspec.msgpack.decode(self.channel.recv_bytes(), type=FreshProcessResult)
        except (EOFError, OSError):
            code = self._process.reap()
            raise TrainerError(
                f"trial {self.number}: the process that retrained it died with exit code {code}; "
                "expected it to finish as in the run"
            ) from None
        finally:
            self.kill()
        if answer.error:
            raise TrainerError(f"trial {self.number}: retraining it raised this error:\n{answer.error}")
        return answer

    def kill(self) -> None:
        """Kill the process if it has not ended."""
        self._process.reap()
        self.channel.close()
