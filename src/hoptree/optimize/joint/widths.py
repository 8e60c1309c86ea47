"""How many devices the visits should have: the preferences that a dry run tries."""

from hoptree.optimize.joint.problem import JointProblem

Preferred = tuple[tuple[int, ...], ...]
"""By config and node, the index of an option."""

DEADLINES = (1.0, 1.03, 1.07, 1.12, 1.2, 1.3, 1.5)
"""As multiples of the lower bound."""


def preferred_widths(problem: JointProblem, bound: float) -> list[Preferred]:
    """List the preferences: whole nodes, at most k devices for every k that occurs, and enough for a deadline."""
    widths = sorted({option.width for row in problem.options for options in row for option in options})
    found = [whole_nodes(problem), *(at_most(problem, width) for width in widths)]
    found += [within(problem, bound * factor) for factor in DEADLINES]
    return list(dict.fromkeys(found))


def whole_nodes(problem: JointProblem) -> Preferred:
    """Prefer the widest option: one config has the node for itself if it can use all its devices."""
    return tuple(tuple(len(options) - 1 for options in row) for row in problem.options)


def at_most(problem: JointProblem, width: int) -> Preferred:
    """Prefer the widest option of at most so many devices, and the narrowest if all are wider."""
    return tuple(
        tuple(max(0, sum(option.width <= width for option in options) - 1) for options in row)
        for row in problem.options
    )


def within(problem: JointProblem, deadline: float) -> Preferred:
    """Prefer the options with little device time with which every config ends by the deadline, or the widest.

    Each config begins with the narrowest options and widens the visit that saves most time for its share of the
    node's devices, until its visits fit one after another.
    """
    rows = []
    for row in problem.options:
        chosen = [0] * len(row)
        length = sum(options[0].seconds for options in row)
        while length > deadline:
            steps = []
            for node, options in enumerate(row):
                if chosen[node] + 1 < len(options):
                    now, more = options[chosen[node]], options[chosen[node] + 1]
                    saved = now.seconds - more.seconds
                    extra = (more.width * more.seconds - now.width * now.seconds) / problem.devices[node]
                    steps.append((extra / saved, node, saved))
            if not steps:
                break
            _, node, saved = min(steps)
            chosen[node] += 1
            length -= saved
        rows.append(tuple(chosen))
    return tuple(rows)
