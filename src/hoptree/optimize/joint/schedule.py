"""Schedules of the joint problem: devices and starts from an order of visits, and the check of a schedule.

Every method decides only the widths and an order, and `place` turns them into devices and starts. So a schedule is
feasible for the given floats, whatever numbers a solver computed with.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from hoptree.core.errors import InvariantError
from hoptree.optimize.joint.problem import JointGrid, JointProblem

Start = tuple[int, int, int]
"""A config starts on a node with an option: their indices in `JointProblem.options`."""


class Visit(msgspec.Struct, frozen=True):
    """A config is trained on the partition of one node, on these devices of the node, from start to end."""

    start: float
    end: float
    devices: tuple[int, ...]

    @property
    def width(self) -> int:
        """The number of devices."""
        return len(self.devices)


Visits = tuple[tuple[Visit, ...], ...]
"""By config and node."""


def place(problem: JointProblem, grid: JointGrid, order: Iterable[Start]) -> Visits:
    """Start every visit as soon as its config, and the devices of its node that are free first, have finished all
    visits before it in `order`.

    Devices are chosen by ticks and starts follow in floats. If `order` is sorted by the starts of a schedule in
    ticks, no visit starts later than there: at that time enough devices are free. Visits that are not in the order
    take no time; they are at 0, where they block nothing.
    """
    rows = [[Visit(0.0, 0.0, tuple(range(options[-1].width))) for options in row] for row in problem.options]
    device_ticks = [[0] * count for count in problem.devices]
    device_free = [[0.0] * count for count in problem.devices]
    config_ticks = [0] * len(rows)
    config_free = [0.0] * len(rows)
    for config, node, index in order:
        width, seconds = problem.options[config][node][index]
        ticks, free = device_ticks[node], device_free[node]
        devices = sorted(range(len(ticks)), key=ticks.__getitem__)[:width]
        start = max(config_free[config], *(free[device] for device in devices))
        end_ticks = max(config_ticks[config], ticks[devices[-1]]) + grid.ticks[config][node][index]
        for device in devices:
            ticks[device], free[device] = end_ticks, start + seconds
        config_ticks[config], config_free[config] = end_ticks, start + seconds
        rows[config][node] = Visit(start, start + seconds, tuple(sorted(devices)))
    return tuple(map(tuple, rows))


def makespan_of(visits: Visits) -> float:
    """Return the end of the last visit."""
    return max(visit.end for row in visits for visit in row)


def order_of(problem: JointProblem, visits: Visits) -> list[Start]:
    """Sort the visits that take time by their start; return them with the index of their option.

    A visit may take so little time that it ends at its start in floats.
    """
    units = []
    for config, row in enumerate(visits):
        for node, visit in enumerate(row):
            index = _index(problem, config, node, visit.width)
            if problem.options[config][node][index].seconds > 0:
                units.append((visit.start, visit.end, (config, node, index)))
    return [start for _, _, start in sorted(units)]


def _index(problem: JointProblem, config: int, node: int, width: int) -> int:
    return [option.width for option in problem.options[config][node]].index(width)


def check_visits(times: Any, devices: Sequence[int], visits: Visits) -> None:
    """Raise InvariantError with the conflict unless the visits are a feasible schedule of `times`.

    The check is exact, without a tolerance. A visit without time blocks nothing.
    """
    shape = [len(row) for row in visits]
    if shape != [len(devices)] * len(times):
        raise InvariantError(f"visits: rows of {shape}; expected {len(times)} rows of {len(devices)}, as in times")
    held: dict[str, list[tuple[float, float, str]]] = {}
    for config, node, visit in _each(visits):
        name = f"visit [{config}][{node}]"
        _check_visit(name, visit, times[config][node], devices[node])
        if visit.end > visit.start:
            for holder in (f"config {config}", *(f"device {device} of node {node}" for device in visit.devices)):
                held.setdefault(holder, []).append((visit.start, visit.end, name))
    for holder, intervals in held.items():
        for (start, end, name), (next_start, next_end, next_name) in pairwise(sorted(intervals)):
            if end > next_start:
                raise InvariantError(
                    f"{holder}: {name} holds it from {start} to {end} and {next_name} from {next_start} to "
                    f"{next_end}; expected one at a time"
                )


def _each(visits: Visits) -> Iterator[tuple[int, int, Visit]]:
    return ((config, node, visit) for config, row in enumerate(visits) for node, visit in enumerate(row))


def _check_visit(name: str, visit: Visit, seconds: Any, devices: int) -> None:
    if not visit.start >= 0:
        raise InvariantError(f"{name}: starts at {visit.start}; expected a start >= 0")
    if visit.width not in seconds or len(set(visit.devices)) != visit.width:
        raise InvariantError(
            f"{name}: devices {visit.devices}; expected as many different ones as a width in times"
        )
    if not all(0 <= device < devices for device in visit.devices):
        raise InvariantError(f"{name}: devices {visit.devices}; expected devices from 0 to {devices - 1}")
    if visit.end != visit.start + float(seconds[visit.width]):
        expected = f"expected {seconds[visit.width]} s with {visit.width} devices"
        raise InvariantError(f"{name}: runs from {visit.start} to {visit.end}; {expected}")
