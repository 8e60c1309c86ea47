"""Joint problems to test schedulers with, and their optimum by brute force."""

from hypothesis import strategies as st

METHODS = ("auto", "cp-sat", "dry-run", "milp", "monte-carlo", "random")

GAP = (
    [
        [{1: 8.0, 2: 5.0}, {1: 4.0, 2: 3.0}],
        [{1: 8.0, 2: 5.0}, {1: 6.0, 2: 4.0}],
        [{1: 6.0, 2: 4.0}, {1: 6.0, 2: 5.0}],
    ],
    [2, 2],
)
"""Three configs on two nodes of two devices: the optimum is 13, above the lower bound."""

any_seconds = st.one_of(
    st.integers(0, 9).map(float),
    st.floats(0, 1e3, allow_subnormal=False),
    st.sampled_from([0.0, 0.1, 0.2, 0.3, 1e-9, 1e9]),
)
whole_seconds = st.integers(0, 9).map(float)


few = st.integers(1, 6)
fewer = st.integers(1, 4)


@st.composite
def problems(draw, configs=few, nodes=fewer, widest=4, seconds=any_seconds):
    """Draw times and devices; every visit fits with at least one width."""
    devices = draw(st.lists(st.integers(1, widest), min_size=(count := draw(nodes)), max_size=count))

    def visit(width: int):
        widths = st.sets(st.integers(1, width), min_size=1)
        return widths.flatmap(lambda chosen: st.fixed_dictionaries(dict.fromkeys(sorted(chosen), seconds)))

    height = draw(configs)
    return [[draw(visit(width)) for width in devices] for _ in range(height)], devices


tiny = problems(st.integers(1, 3), st.integers(1, 2), 2, whole_seconds | any_seconds)


def optimum(times, devices) -> float:
    """Return the shortest makespan of all widths and all orders of starts."""
    best = float("inf")
    visits = [(i, n) for i, row in enumerate(times) for n in range(len(row)) if min(row[n].values()) > 0]

    def extend(left, config_free, device_free, now):
        nonlocal best
        if not left:
            best = min(best, max(config_free))
        for i, n in left:
            for width, seconds in times[i][n].items():
                free = sorted(device_free[n])
                start = max(config_free[i], free[width - 1])
                if start < now or start + seconds >= best:
                    continue
                configs = [start + seconds if k == i else value for k, value in enumerate(config_free)]
                nodes = [
                    [start + seconds] * width + free[width:] if k == n else v for k, v in enumerate(device_free)
                ]
                extend([visit for visit in left if visit != (i, n)], configs, nodes, start)

    extend(visits, [0.0] * len(times), [[0.0] * count for count in devices], 0.0)
    return best
