"""Open shops to test schedulers with, and their optimum by brute force."""

from hypothesis import strategies as st

from hoptree.optimize.bounds import load_bound
from hoptree.optimize.list_schedule import longest_path
from hoptree.optimize.schedule import Times, makespan_of

METHODS = ("cp-sat", "milp", "vector", "longest-path", "random")

TAILLARD = ((34, 2, 54, 61), (15, 89, 70, 9), (38, 19, 28, 87), (95, 7, 34, 29))
"""The first 4x4 open shop of Taillard (1993): lower bound 186, optimum 193."""

any_time = st.one_of(
    st.integers(0, 9).map(float),
    st.floats(0, 1e3, allow_subnormal=False),
    st.sampled_from([0.0, 0.1, 0.2, 0.3, 1e-9, 1e9]),
)


few = st.integers(1, 8)
fewer = st.integers(1, 5)


@st.composite
def matrices(draw, configs=few, workers=fewer, times=any_time) -> Times:
    width = draw(workers)
    row = st.tuples(*[times] * width)
    return tuple(draw(st.lists(row, min_size=(height := draw(configs)), max_size=height)))


def optimum(times: Times) -> float:
    """Return the shortest makespan of all schedules, unit by unit in the order of their starts."""
    best = makespan_of(times, longest_path(times))
    lower = load_bound(times)
    units = [(i, j) for i, row in enumerate(times) for j in range(len(row)) if row[j] > 0]

    def extend(left, config_free, worker_free, now):
        nonlocal best
        if not left:
            best = min(best, max(config_free), max(worker_free))
        for i, j in left:
            start = max(config_free[i], worker_free[j])
            if start < now or best <= lower:
                continue
            rest = [unit for unit in left if unit != (i, j)]
            end = start + times[i][j]
            configs = [end if k == i else free for k, free in enumerate(config_free)]
            workers = [end if k == j else free for k, free in enumerate(worker_free)]
            config_ends = [free + sum(times[a][b] for a, b in rest if a == k) for k, free in enumerate(configs)]
            worker_ends = [free + sum(times[a][b] for a, b in rest if b == k) for k, free in enumerate(workers)]
            if max(*config_ends, *worker_ends) < best:
                extend(rest, configs, workers, start)

    extend(units, [0.0] * len(times), [0.0] * len(times[0]), 0.0)
    return best
