"""The state of a joint schedule while it is built in the order of events, in ticks."""

from heapq import heappop, heappush

from hoptree.optimize.joint.problem import JointGrid, JointProblem
from hoptree.optimize.joint.schedule import Start


class GangShop:
    """Free devices, idle configs and what is left to do. Visits without time are left out: they block nothing."""

    def __init__(self, problem: JointProblem, grid: JointGrid) -> None:
        self.options = problem.options
        self.free = list(problem.devices)
        self.idle = [True] * len(problem.options)
        self.pending = [
            [config for config, row in enumerate(problem.options) if row[node][-1].seconds > 0]
            for node in range(len(problem.devices))
        ]
        """By node, the configs that have not visited it."""
        self.starting: list[Start] = []
        """The visits that start now; they can still be widened."""
        self.order: list[Start] = []
        self.now = 0
        self._ticks, self._instant = grid.ticks, grid.error
        self._running: list[tuple[int, int, int, int]] = []

    def ready(self, node: int) -> list[int]:
        """Return the idle configs that have not visited the node."""
        idle = self.idle
        return [config for config in self.pending[node] if idle[config]]

    def widest(self, config: int, node: int, at_most: int) -> int:
        """Return the index of the widest option up to `at_most` whose devices are free, or -1."""
        options, free = self.options[config][node], self.free[node]
        index = at_most
        while index >= 0 and options[index].width > free:
            index -= 1
        return index

    def start(self, config: int, node: int, index: int) -> None:
        """Start the visit now."""
        self.pending[node].remove(config)
        self.idle[config] = False
        self.free[node] -= self.options[config][node][index].width
        self.starting.append((config, node, index))

    def widen(self, position: int, index: int) -> None:
        """Give a visit that starts now the devices of a wider option."""
        config, node, narrow = self.starting[position]
        options = self.options[config][node]
        self.free[node] -= options[index].width - options[narrow].width
        self.starting[position] = (config, node, index)

    def wait(self) -> bool:
        """Advance to the next end of a visit, past all ends of that instant; return False if nothing runs."""
        for config, node, index in self.starting:
            width = self.options[config][node][index].width
            heappush(self._running, (self.now + self._ticks[config][node][index], config, node, width))
        self.order += self.starting
        self.starting = []
        if not self._running:
            return False
        last = self._running[0][0] + self._instant
        while self._running and self._running[0][0] <= last:
            self.now, config, node, width = heappop(self._running)
            self.idle[config] = True
            self.free[node] += width
        return True
