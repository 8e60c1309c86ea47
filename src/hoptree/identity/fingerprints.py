"""Fingerprints of users' functions and values: a hash of what they do, not of how they are written.

A function counts by its instructions, constants, defaults, captured values and the globals it reads, followed
through the user's own functions and classes; libraries count by name and version. Comments, layout,
docstrings, annotations, messages, names of local variables, the file and the place in it do not count.
"""

from __future__ import annotations

from hoptree.identity.describe import describe
from hoptree.identity.patches import patches
from hoptree.identity.walk import Walk


def fingerprint(value: object) -> str:
    """Return 128 bits in hex; raise ``IdentityError`` naming what cannot be told apart by value.

    >>> rate = 0.1
    >>> fingerprint(lambda x: x * rate) == fingerprint(lambda x: (x * rate))  # a note
    True
    >>> fingerprint(lambda x: x + rate) == fingerprint(lambda x: x * rate)
    False
    """
    return _walked(value)[1]


def code_alone(value: object) -> tuple[str, list[str]]:
    """Return a fingerprint that is the same with any versions of libraries, and these libraries with theirs.

    >>> import json, sys
    >>> code_alone(lambda text: json.loads(text))[1] == ["python-" + ".".join(map(str, sys.version_info[:2]))]
    True
    """
    walk, digest = _walked(value, versions=False)
    return digest, sorted(walk.releases)


def covered(value: object) -> dict[str, str]:
    """Return, for each of the user's modules that a value reaches, a digest of what it reaches there alone.

    Two processes that disagree about a fingerprint compare these to name the module that differs.
    """
    return _walked(value)[0].by_module()


def _walked(value: object, versions: bool = True) -> tuple[Walk, str]:
    """Walk over a value, and once more if code asks for what usually does not count, such as names."""
    features: frozenset[str] = frozenset()
    while True:
        walk = Walk(describe, versions=versions, features=features)
        roots = [walk.add(value)]
        done: set[str] = set()
        while walk.roots > done:
            new, done = walk.roots - done, set(walk.roots)
            roots += [walk.add(list(patch)) for patch in patches(new)]
        if walk.wanted <= features:
            return walk, walk.digest(*roots).hex()
        features |= walk.wanted
