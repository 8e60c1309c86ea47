"""List schedulers: an idle worker takes a ready config by a rule. They take milliseconds, and no solver.

No worker waits while a config is ready for it. So if worker j ends last, with config i, then i ran elsewhere
whenever j was idle: the makespan is at most the load of j plus the time of i on the other workers.
"""

import math
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

from hoptree.optimize.grid import TimeGrid, to_grid
from hoptree.optimize.schedule import Starts, Times, Unit, earliest_starts


class OpenShop:
    """The ready and the remaining work while a schedule is built, in ticks."""

    def __init__(self, grid: TimeGrid, pending: list[list[int]]) -> None:
        self.ticks = grid.ticks
        self.pending = pending
        """By worker, the configs that it still has to run."""
        self.config_left = [sum(row) for row in grid.ticks]
        self.worker_left = [sum(column) for column in zip(*grid.ticks, strict=True)]
        self.config_idle = [True] * len(self.config_left)
        self.worker_idle = [True] * len(self.worker_left)
        self.running: list[tuple[int, Unit]] = []
        self.order: list[Unit] = []
        self.now = 0

    def ready(self, worker: int) -> list[int]:
        """Return the idle configs that the worker still has to run."""
        idle = self.config_idle
        return [config for config in self.pending[worker] if idle[config]]

    def start(self, config: int, worker: int) -> None:
        """Start the config on the worker now."""
        ticks = self.ticks[config][worker]
        self.pending[worker].remove(config)
        self.config_left[config] -= ticks
        self.worker_left[worker] -= ticks
        self.config_idle[config] = self.worker_idle[worker] = False
        self.order.append((config, worker))
        heappush(self.running, (self.now + ticks, (config, worker)))

    def wait(self, instant: int) -> None:
        """Advance the time to the next end of a unit, and past all ends within `instant` ticks of it."""
        last = self.running[0][0] + instant
        while self.running and self.running[0][0] <= last:
            self.now, (config, worker) = heappop(self.running)
            self.config_idle[config] = self.worker_idle[worker] = True


Rule = Callable[[OpenShop, list[int]], None]
"""Starts units on the idle workers until none of them has a ready config."""


def list_schedule(times: Times, rule: Rule) -> Starts:
    """Build a schedule in the order of events; process all ends of an instant before its starts.

    Units without time run first, at 0, where they block nothing.
    """
    grid = to_grid(times)
    workers = range(len(times[0]))
    shop = OpenShop(grid, [[i for i, row in enumerate(times) if row[j] > 0] for j in workers])
    while True:
        rule(shop, [worker for worker in workers if shop.worker_idle[worker]])
        if not shop.running:
            return earliest_starts(times, shop.order)
        shop.wait(grid.error)


def longest_path(times: Times) -> Starts:
    """Serve the longest remaining time first: the idle worker or ready config that has most left to do, with
    the longest ready one of the other side. Ties follow `rotation`.

    With equal configs and equal workers everything is a tie, so the rotation is the schedule, and it meets the
    lower bound.
    """
    turns = rotation(len(times), len(times[0]))

    def rule(shop: OpenShop, idle: list[int]) -> None:
        def best(worker: int) -> tuple[int, int, int, int, int] | None:
            ready = shop.ready(worker)
            if not ready:
                return None
            left = shop.config_left
            longest = max([left[config] for config in ready])
            turn, config = min([(turns[i][worker], i) for i in ready if left[i] == longest])
            mine = shop.worker_left[worker]
            return -max(longest, mine), -min(longest, mine), turn, config, worker

        offers = [offer for offer in map(best, idle) if offer]
        while offers:
            *_, taken, worker = min(offers)
            shop.start(taken, worker)
            again = [best(offer[4]) if offer[3] == taken else offer for offer in offers if offer[4] != worker]
            offers = [offer for offer in again if offer]

    return list_schedule(times, rule)


def random_order(times: Times, seed: int) -> Starts:
    """Let each idle worker take a ready config at random (algorithms 1 and 2 of the Cerebro paper)."""
    random = Random(seed)

    def rule(shop: OpenShop, idle: list[int]) -> None:
        for worker in idle:
            ready = shop.ready(worker)
            if ready:
                shop.start(random.choice(ready), worker)

    return list_schedule(times, rule)


def rotation(configs: int, workers: int) -> list[list[int]]:
    """Rotate equal configs through equal workers, in max(configs, workers) turns; return the turn of each unit.

    The smaller side is busy in every turn while the other one rotates. The rotation repeats its pairs after the
    least common multiple of both numbers: from there on it is shifted by one.

    >>> rotation(4, 2)
    [[0, 2], [2, 0], [1, 3], [3, 1]]
    """
    if configs < workers:
        return [list(column) for column in zip(*rotation(workers, configs), strict=True)]
    turns = [[0] * workers for _ in range(configs)]
    for step in range(configs * workers):
        turn, position = divmod(step, workers)
        turns[step % configs][(position + step // math.lcm(configs, workers)) % workers] = turn
    return turns
