"""Streams: the random numbers of a study, each found from what it is for.

There is no generator whose state would depend on what was drawn before. The number for a parameter of a config is
a hash of the study's seed, the parameter's path and the config's number, so a new parameter changes no other, and
config 7 is the same whether or not anyone asked for the first six. Python, numpy and their versions have no part
in it.
"""

from __future__ import annotations

from hoptree.core.keys import Encodable, fraction


def share(*parts: Encodable) -> float:
    """Return a number from 0 up to, not including, 1 that follows from the parts.

    >>> share(0, "lr", 7)
    0.3259915535718886
    """
    return fraction("search", *parts)
