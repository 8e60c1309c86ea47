"""The execution of a plan as a graph of tasks with latencies: the model of RubberBand, and its algorithm 1.

SCALE requests nodes, INIT_INSTANCE prepares one of them, TRAIN trains a trial in a stage, and SYNC ends the stage.
Nodes are requested when the stage before has ended, as in the paper; trials that share devices evenly are one TRAIN
task. The timeline (timeline.py) is the same without the graph, and counts money too.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import final

import numpy as np

from hoptree.elastic.samples import Samples, StageSampler
from hoptree.elastic.stage_model import StageModel
from hoptree.elastic.timeline import StageTime, Terms


class TaskKind(Enum):
    """What a task does."""

    SCALE = "SCALE"
    INIT_INSTANCE = "INIT_INSTANCE"
    TRAIN = "TRAIN"
    SYNC = "SYNC"


@final
class ExecutionGraph:
    """Tasks in topological order, each with samples of its latency and the tasks that must have ended before."""

    def __init__(self) -> None:
        self.kinds: list[TaskKind] = []
        self.latencies: list[Samples] = []
        self.before: list[tuple[int, ...]] = []

    def add(self, kind: TaskKind, latency: Samples | float, before: Sequence[int]) -> int:
        """Add a task, and return its number."""
        assert all(number < len(self.kinds) for number in before), (kind, before)
        self.kinds.append(kind)
        self.latencies.append(np.atleast_1d(np.asarray(latency, dtype=np.float64)))
        self.before.append(tuple(before))
        return len(self.kinds) - 1

    def count(self, kind: TaskKind) -> int:
        """Return how many tasks of a kind there are."""
        return self.kinds.count(kind)

    def durations(self) -> Samples:
        """Return samples of the time in which all tasks are done: the longest path (algorithm 1)."""
        ends: list[Samples] = []
        for latency, before in zip(self.latencies, self.before, strict=True):
            begin = np.max(np.broadcast_arrays(*[ends[number] for number in before]), axis=0) if before else 0.0
            ends.append(begin + latency)
        return np.asarray(np.max(np.broadcast_arrays(*ends), axis=0))


def execution_graph(
    counts: Sequence[int], model: StageModel, terms: Terms, sampler: StageSampler, *, running: int = 0
) -> ExecutionGraph:
    """Return the graph of a number of nodes for each stage."""
    graph = ExecutionGraph()
    times = sampler.times(counts)
    frontier: list[int] = []
    have = running
    for index, count in enumerate(counts):
        if count > have:
            scale = graph.add(TaskKind.SCALE, terms.provision, frontier)
            frontier = [graph.add(TaskKind.INIT_INSTANCE, terms.start, [scale]) for _ in range(count - have)]
        have = count
        trained = _add_training(graph, frontier, sampler.trials(index), times[index], model, count)
        sync = model.job.sync if index + 1 < len(counts) else 0.0
        frontier = [graph.add(TaskKind.SYNC, sync, trained)]
    return graph


def _add_training(
    graph: ExecutionGraph, frontier: Sequence[int], trials: Samples, time: StageTime, model: StageModel, count: int
) -> list[int]:
    """Add the TRAIN tasks of a stage, and return them."""
    share = model.share(len(trials), count)
    if not share.turns:
        return [graph.add(TaskKind.TRAIN, each / share.speed, frontier) for each in trials]
    if model.job.divisible:
        return [graph.add(TaskKind.TRAIN, time.seconds, frontier)]
    devices = count * model.instance.devices
    found: list[int] = []
    for number, each in enumerate(trials):
        before = frontier if number < devices else [found[number - devices]]
        found.append(graph.add(TaskKind.TRAIN, each, before))
    return found
