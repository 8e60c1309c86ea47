"""Vector rearrangement (Fiala 1983, Sevast'yanov): optimal when there is much more work than workers.

With p workers, the largest load L and the longest unit T:

1. Pad every worker's load to L without making any unit longer than T.
2. Order the configs so that after each of them the loads so far of any two workers differ by at most
   (p - 1) T. `compact_order` does: the times of a config are a vector whose coordinates span T at most.
3. Each worker runs all configs in this order without a break. Worker j + 1 starts later than worker j, so
   late that every config has left worker j when its turn comes. That is pT at most: (p - 1) T between the two
   loads up to and with this config, and T for the config itself. It starts up to T later still, so that some
   config ends on it at the very time L.
4. What comes after L is moved to the beginning, where the worker was still waiting: now all ends at L. A
   config would be on two workers at once only if from its start on the first worker to its end on the last
   more than L had passed. That is (p - 1)(p + 1) T at most for the late start and, as above, pT.

So the makespan is L, which is optimal, if L >= (p^2 - 1 + p) T. Step 3 waits as long as it must, not as long
as the proof allows; so L is often met well below that condition.

The answer is the better of that and a list schedule by the same order. In a list schedule, if worker j ends
last, with config i, then i ran elsewhere whenever j was idle: for (p - 1) T at most. So the makespan never
exceeds L + (p - 1) T. Both guarantees hold up to the rounding of floats.
"""

from itertools import accumulate, pairwise
from time import monotonic

from hoptree.optimize.bounds import worker_loads
from hoptree.optimize.extra import require
from hoptree.optimize.grid import TOLERANCE
from hoptree.optimize.list_schedule import OpenShop, list_schedule
from hoptree.optimize.schedule import Starts, Times, earliest_starts, makespan_of, order_by_start
from hoptree.optimize.steinitz import compact_order


def vector_rearrangement(times: Times, seconds: float) -> Starts:
    """Return the schedule described above, or a list schedule if the time is over first."""
    numpy = require("numpy", "vector")
    configs, workers = len(times), len(times[0])
    longest = max(map(max, times)) or 1.0
    padded = pad(times)
    order = compact_order(numpy.array(padded) / longest, monotonic() + seconds)
    cuts = wrap(padded, order) if order else None
    if order is None or cuts is None:
        evenly = [-(configs * worker // workers) % configs for worker in range(workers)]
        return follow(times, order or list(range(configs)), evenly)
    starts = rotated(padded, times, order, cuts)
    if makespan_of(times, starts) <= max(worker_loads(times)) * (1 + TOLERANCE):
        return starts
    return min(starts, follow(times, order, cuts), key=lambda starts: makespan_of(times, starts))


def pad(times: Times) -> Times:
    """Lengthen times until all workers have equal loads, none beyond the longest time.

    A worker is slowed down in proportion if that makes no unit too long, which equalizes workers that differ only
    in speed. Otherwise each unit is moved towards the longest time by the same fraction of the difference.
    """
    loads = worker_loads(times)
    load, longest = max(loads), max(map(max, times))
    columns = []
    for column, own in zip(zip(*times, strict=True), loads, strict=True):
        if own > 0 and max(column) * (load / own) <= longest * (1 + 1e-12):
            columns.append([time * (load / own) for time in column])
        else:
            room = len(column) * longest - own
            share = (load - own) / room if room > 0 else 0.0
            columns.append([time + share * (longest - time) for time in column])
    return tuple(zip(*columns, strict=True))


def wrap(padded: Times, order: list[int]) -> list[int] | None:
    """Find the position in the order at which each worker starts (steps 3 and 4); None if a shift would exceed L.

    A worker that starts at position c first runs the configs from there to the end of the order.
    """
    loads = [list(accumulate((padded[i][j] for i in order), initial=0.0)) for j in range(len(padded[0]))]
    cuts, shift = [0], 0.0
    for before, own in pairwise(loads):
        shift += max(end - start for end, start in zip(before[1:], own, strict=False))
        positions = [position for position, load in enumerate(own) if own[-1] - load >= shift]
        if not positions:
            return None
        cuts.append(positions[-1])
        shift = own[-1] - own[positions[-1]]
    return cuts


def rotated(padded: Times, times: Times, order: list[int], cuts: list[int]) -> Starts:
    """Let every worker run the order from its cut on, as early as the real times allow."""
    starts = [[0.0] * len(cuts) for _ in order]
    for worker, cut in enumerate(cuts):
        clock = 0.0
        for config in order[cut:] + order[:cut]:
            starts[config][worker] = clock
            clock += padded[config][worker]
    return earliest_starts(times, order_by_start(padded, starts))


def follow(times: Times, order: list[int], cuts: list[int]) -> Starts:
    """Let every idle worker take the first ready config of the order, counted from its cut."""
    turns = [{config: turn for turn, config in enumerate(order[cut:] + order[:cut])} for cut in cuts]

    def rule(shop: OpenShop, idle: list[int]) -> None:
        for worker in idle:
            ready = shop.ready(worker)
            if ready:
                shop.start(min(ready, key=turns[worker].__getitem__), worker)

    return list_schedule(times, rule)
