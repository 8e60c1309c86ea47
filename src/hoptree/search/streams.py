"""Random streams: each random number of a study is a hash of its purpose.

There is no generator whose state would depend on earlier draws. The number for a parameter of a config is a hash
of the study's seed, the parameter's path and the config's number. So a new parameter changes no other, and config 7
is the same whether or not the first six were drawn. It does not depend on the versions of Python and numpy.
"""

from __future__ import annotations

from hoptree.core.keys import Encodable, fraction


def share(*parts: Encodable) -> float:
    """Return a number in [0, 1) that depends only on the parts.

    >>> share(0, "lr", 7)
    0.3259915535718886
    """
    return fraction("search", *parts)
