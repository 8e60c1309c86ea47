"""Fingerprints of users' functions and values: a hash of their behaviour, not of their source text.

A function counts by its instructions, constants, defaults, captured values and the globals it reads, followed
through the user's own functions and classes; libraries count by name and version. Comments, layout, docstrings,
annotations, messages, names of local variables, the file and the position in it do not count.
"""

from __future__ import annotations

from hoptree.identity.describe import describe
from hoptree.identity.patches import patches
from hoptree.identity.walk import Walk


def fingerprint(value: object) -> str:
    """Return 128 bits in hex; raise ``IdentityError`` if a part cannot be compared between runs.

    >>> rate = 0.1
    >>> fingerprint(lambda x: x * rate) == fingerprint(lambda x: (x * rate))  # a note
    True
    >>> fingerprint(lambda x: x + rate) == fingerprint(lambda x: x * rate)
    False
    """
    return _walked(value)[1]


def code_alone(value: object) -> tuple[str, list[str]]:
    """Return a fingerprint that ignores the versions of libraries, and the libraries with their versions.

    >>> import json, sys
    >>> code_alone(lambda text: json.loads(text))[1] == ["python-" + ".".join(map(str, sys.version_info[:2]))]
    True
    """
    walk, digest = _walked(value, versions=False)
    return digest, sorted(walk.releases)


def covered(value: object) -> dict[str, str]:
    """Return, for each of the user's modules that a value reaches, a digest of what it reaches in that module.

    Two processes whose fingerprints differ compare these to name the module that differs.
    """
    return _walked(value)[0].by_module()


def _walked(value: object, versions: bool = True) -> tuple[Walk, str]:
    """Walk over a value, and again if code uses something that usually does not count, such as names."""
    features: frozenset[str] = frozenset()
    while True:
        walk = Walk(describe, versions=versions, features=features)
        roots = [walk.add(value)]
        done: set[str] = set()
        while walk.roots > done:
            new, done = walk.roots - done, set(walk.roots)
            roots += [walk.add(list(patch)) for patch in patches(new)]
        if walk.required_features <= features:
            return walk, walk.digest(*roots).hex()
        features |= walk.required_features
