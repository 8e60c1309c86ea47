"""The open-shop instances of Taillard, from his generator and his seeds, so that no file has to be shipped.

E. Taillard, "Benchmarks for basic scheduling problems", European Journal of Operational Research 64 (1993),
278-285: ten instances of each size, 4 x 4 to 20 x 20. A job is a config here, and a machine is a worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

from hoptree.core.errors import WorkloadError

MODULUS: Final = 2**31 - 1
SHORTEST, LONGEST = 1, 99

SEEDS: Final = MappingProxyType(
    {
        4: (
            (1166510396, 164000672),
            (1624514147, 1076870026),
            (1116611914, 1729673136),
            (410579806, 1453014524),
            (1036100146, 375655500),
            (597897640, 322140729),
            (1268670769, 556009645),
            (307928077, 421384574),
            (667545295, 485515899),
            (35780816, 492238933),
        ),
        5: (
            (527556884, 1343124817),
            (1046824493, 1973406531),
            (1165033492, 86711717),
            (476292817, 24463110),
            (1181363416, 606981348),
            (897739730, 513119113),
            (577107303, 2046387124),
            (1714191910, 1928475945),
            (1813128617, 2091141708),
            (808919936, 183753764),
        ),
        7: (
            (1840686215, 1827454623),
            (1026771938, 1312166461),
            (609471574, 670843185),
            (1022295947, 398226875),
            (1513073047, 1250759651),
            (1612211197, 95606345),
            (435024109, 1118234860),
            (1760865440, 1099909092),
            (122574075, 10979313),
            (248031774, 1685251301),
        ),
        10: (
            (1344106948, 1868311537),
            (425990073, 1111853152),
            (666128954, 1750328066),
            (442723456, 1369177184),
            (2033800800, 1344077538),
            (964467313, 1735817385),
            (1004528509, 967002400),
            (1667495107, 818777384),
            (1806968543, 1561913259),
            (938376228, 344628625),
        ),
        15: (
            (1561423441, 1787167667),
            (204120997, 213027331),
            (801158374, 1812110433),
            (1502847623, 1527847153),
            (282791231, 1855451778),
            (1130361878, 849417380),
            (379464508, 944419714),
            (1760142791, 1955448160),
            (1993140927, 179408412),
            (1678386613, 1567160817),
        ),
        20: (
            (957638, 9237185),
            (162587311, 1489531109),
            (965299017, 1054695706),
            (1158457671, 1499999517),
            (1191143707, 1530757746),
            (1826671743, 901609771),
            (1591533998, 1146547719),
            (937297777, 92726463),
            (687896268, 1731298717),
            (687034842, 684013066),
        ),
    }
)
"""By size, the published time seed and machine seed of every instance."""


def instance(size: int, number: int) -> tuple[tuple[int, ...], ...]:
    """Return the times of one of the ten instances of a size, numbered from 1: a row for each job.

    >>> instance(4, 1)
    ((34, 2, 54, 61), (15, 89, 70, 9), (38, 19, 28, 87), (95, 7, 34, 29))
    """
    if size not in SEEDS:
        raise WorkloadError(f"size: {size}; expected one of {', '.join(map(str, SEEDS))}")
    if not 1 <= number <= len(SEEDS[size]):
        raise WorkloadError(f"number: {number}; expected 1 to {len(SEEDS[size])}")
    return generate(size, size, *SEEDS[size][number - 1])


def generate(jobs: int, machines: int, time_seed: int, machine_seed: int) -> tuple[tuple[int, ...], ...]:
    """Draw the times of an open shop, job by job, then the machine of each, by shuffling the machines of a job."""
    times, swaps = _uniform(time_seed), _uniform(machine_seed)
    drawn = [[_between(next(times), SHORTEST, LONGEST) for _ in range(machines)] for _ in range(jobs)]
    rows = []
    for row in drawn:
        order = list(range(machines))
        for place in range(machines):
            other = _between(next(swaps), place, machines - 1)
            order[place], order[other] = order[other], order[place]
        by_machine = dict(zip(order, row, strict=True))
        rows.append(tuple(by_machine[machine] for machine in range(machines)))
    return tuple(rows)


def _uniform(seed: int) -> Iterator[int]:
    """Yield the numbers of the Lehmer generator that the paper uses: 16807 times the last, modulo 2^31 - 1."""
    if not 0 < seed < MODULUS:
        raise WorkloadError(f"seed: {seed}; expected 1 to {MODULUS - 1}")
    while True:
        seed = seed * 16_807 % MODULUS
        yield seed


def _between(number: int, low: int, high: int) -> int:
    return low + number * (high - low + 1) // MODULUS
