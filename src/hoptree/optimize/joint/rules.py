"""Rules that build a joint schedule in milliseconds, without a solver.

At every instant, free devices are given to the longest remaining paths. Rules differ in the number of devices that
they prefer for a visit, and in what they do when fewer or more are free.
"""

from collections.abc import Iterator
from itertools import product
from math import inf
from typing import NamedTuple

from hoptree.optimize.joint.problem import JointGrid, JointProblem
from hoptree.optimize.joint.schedule import Start
from hoptree.optimize.joint.shop import GangShop
from hoptree.optimize.joint.widths import Preferred, preferred_widths, whole_nodes
from hoptree.optimize.list_schedule import rotation


class JointRule(NamedTuple):
    """How free devices are given out."""

    preferred: Preferred
    """By config and node, the index of the option that a visit should have."""
    longest_visit: bool
    """A node takes the config with the longest visit instead of the longest remaining path."""
    narrow: bool
    """A visit starts with fewer devices if the preferred ones are not free; otherwise it waits."""
    widen: float
    """Devices that stay free go to the longest remaining paths that start now, while a step to the next option
    multiplies the device time of the visit by at most this."""


def rules_of(problem: JointProblem, bound: float) -> Iterator[JointRule]:
    """List the rules of a dry run: all ways to give out devices, for every preference of widths."""
    for preferred in preferred_widths(problem, bound):
        for longest_visit, narrow, widen in product((False, True), (False, True), (1.0, inf)):
            yield JointRule(preferred, longest_visit, narrow, widen)


def strict_rotation(problem: JointProblem) -> list[Start]:
    """Rotate the configs through whole nodes in a fixed order: optimal for equal configs that scale linearly."""
    turns = rotation(len(problem.options), len(problem.devices))
    preferred = whole_nodes(problem)
    units = [
        (turns[config][node], config, node)
        for config, row in enumerate(problem.options)
        for node in range(len(row))
        if row[node][-1].seconds > 0
    ]
    return [(config, node, preferred[config][node]) for _, config, node in sorted(units)]


def follow(problem: JointProblem, grid: JointGrid, rule: JointRule) -> list[Start]:
    """Build the schedule of a rule; return its visits in the order of their starts."""
    shop, left = GangShop(problem, grid), RemainingWork(problem, grid, rule)
    while True:
        offers = [offer for node, free in enumerate(shop.free) if free and (offer := _offer(shop, left, node))]
        while offers:
            offer = min(offers)
            shop.start(offer.config, offer.node, offer.option)
            left.subtract(offer.config, offer.node)
            again = [
                _offer(shop, left, other.node)
                if other.node == offer.node or other.config == offer.config
                else other
                for other in offers
            ]
            offers = [other for other in again if other]
        _widen(shop, left)
        if not shop.wait():
            return shop.order


class Offer(NamedTuple):
    """The visit that a node would start now; the least one starts first."""

    longer: float
    shorter: float
    turn: int
    config: int
    node: int
    option: int


class RemainingWork:
    """What is left of every config and every node, in ticks, if visits have the widths that the rule prefers."""

    def __init__(self, problem: JointProblem, grid: JointGrid, rule: JointRule) -> None:
        self.rule = rule
        self.turns = rotation(len(problem.options), len(problem.devices))
        self.visits = [
            [ticks[index] for ticks, index in zip(*rows, strict=True)]
            for rows in zip(grid.ticks, rule.preferred, strict=True)
        ]
        self._shares = [
            [
                ticks * options[index].width / devices
                for ticks, options, index, devices in zip(*rows, problem.devices, strict=True)
            ]
            for rows in zip(self.visits, problem.options, rule.preferred, strict=True)
        ]
        self.of_config = [sum(row) for row in self.visits]
        self.of_node = [sum(column) for column in zip(*self._shares, strict=True)]

    def subtract(self, config: int, node: int) -> None:
        """Count a visit as done."""
        self.of_config[config] -= self.visits[config][node]
        self.of_node[node] -= self._shares[config][node]


def _offer(shop: GangShop, left: RemainingWork, node: int) -> Offer | None:
    """Find the ready config with the longest path (or visit) that fits on the free devices of the node."""
    rule, best, found = left.rule, (-1.0, 0), None
    for config in shop.ready(node):
        preferred = rule.preferred[config][node]
        index = shop.widest(config, node, preferred)
        if index == preferred or (rule.narrow and index >= 0):
            length = left.visits[config][node] if rule.longest_visit else left.of_config[config]
            rank = (length, -left.turns[config][node])
            if rank > best:
                best, found = rank, (config, index)
    if found is None:
        return None
    config, index = found
    mine, path = left.of_node[node], left.of_config[config]
    return Offer(-max(mine, path), -min(mine, path), left.turns[config][node], config, node, index)


def _widen(shop: GangShop, left: RemainingWork) -> None:
    """Give the devices that are still free to the visits that start now, the longest remaining path first."""
    if left.rule.widen <= 1:
        return
    positions = range(len(shop.starting))
    for position in sorted(positions, key=lambda one: -left.of_config[shop.starting[one][0]]):
        config, node, index = shop.starting[position]
        options = shop.options[config][node]
        while index + 1 < len(options):
            now, more = options[index], options[index + 1]
            costly = more.width * more.seconds > left.rule.widen * now.width * now.seconds
            if costly or more.width - now.width > shop.free[node]:
                break
            index += 1
            shop.widen(position, index)
