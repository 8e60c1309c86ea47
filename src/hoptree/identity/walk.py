"""Walk over everything that a value reaches: functions, classes, modules and plain values form a graph."""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Iterable
from pathlib import PurePath
from typing import Any, NamedTuple, TypeAlias, final

from hoptree.identity.errors import IdentityError
from hoptree.identity.graph import ObjectNode, digests, hashed
from hoptree.identity.libraries import release


class ValuePart(NamedTuple):
    """A value that another one refers to, under a name, and its location for messages."""

    value: Any
    where: str = ""
    name: str = ""


class Label(NamedTuple):
    """A text that counts as it is."""

    text: str


Parts: TypeAlias = Iterable[Any]  # ValuePart, Label, bytes (a digest), or a value


class Description(NamedTuple):
    """The parts of a value."""

    kind: str
    parts: Parts
    owner: str = ""  # the user's module that defines it
    ordered: bool = True


Describe: TypeAlias = Callable[["Walk", Any], Description]


@final
class Walk:
    """Numbers every object once, and keeps it alive so that no other object gets its id."""

    def __init__(self, describe: Describe, *, versions: bool, features: frozenset[str]) -> None:
        self.releases: set[str] = set()  # names and versions of the libraries in use
        self.roots: set[str] = set()  # names of these libraries' packages
        self.features = features  # what else counts: "names", "annotations", "documentation"
        self.required_features: set[str] = set()  # features that the visited code uses
        self.folders: set[str] = set()  # folders of the user's code
        self.keep: dict[object, Any] = {}  # objects created during the walk, one for each key
        self._describe = describe
        self._versions = versions
        self._numbers: dict[int, int] = {}
        self._values: list[Any] = []
        self._nodes: list[ObjectNode] = []
        self._parents: list[tuple[int, str]] = []
        self._paths: dict[bytes, str] = {}
        self._open: list[int] = []

    def add(self, value: Any) -> bytes | int:
        """Walk over a value and all that it reaches; return its digest if it is a leaf, otherwise its number."""
        found = self._refer(ValuePart(value), -1)
        while self._open:
            number = self._open.pop()
            self._current = number
            described = self._describe(self, self._values[number])
            parts = [self._part(part, number) for part in described.parts]
            self._nodes[number] = ObjectNode(
                described.kind, [each for part in parts for each in part], described.owner, described.ordered
            )
        return found

    def digest(self, *roots: bytes | int) -> bytes:
        """Return the digest of everything that was added."""
        known = digests(self._resolved())
        return hashed("root", *(root if isinstance(root, bytes) else known[root] for root in roots))

    def by_module(self) -> dict[str, str]:
        """Return, for each of the user's modules in the graph, a digest of its own objects."""
        nodes = self._resolved()
        owners = sorted({node.owner for node in nodes if node.owner})
        found: dict[str, str] = {}
        for owner in owners:

            def other_module(number: int, owner: str = owner) -> bytes | None:
                other = nodes[number].owner
                return hashed("elsewhere", other) if other and other != owner else None

            known = digests(nodes, other_module)
            own = [known[number] for number, node in enumerate(nodes) if node.owner == owner]
            found[owner] = hashed(*sorted(set(own))).hex()
        return found

    def release(self, module: str) -> str:
        """Add a library to the releases, and return its name and version."""
        self.roots.add(module.partition(".")[0])
        return self.note_release(release(module))

    def note_release(self, released: str) -> str:
        """Add a release, and return the part of it that counts."""
        self.releases.add(released)
        return released if self._versions else released.rpartition("-")[0]

    def incomparable(self, value: object) -> IdentityError:
        """Return the error for a value that cannot be compared, with its location."""
        locations: list[str] = []
        number = self._current
        while number >= 0:
            number, where = self._parents[number]
            locations.append(where)
        location = " of ".join(each for each in locations if each) or "the value"
        return IdentityError(
            f"{location}: a {type(value).__module__}.{type(value).__qualname__}, which cannot be compared between "
            "runs; create it inside the function that uses it, or pass the arguments that it is created from"
        )

    def _part(self, part: Any, parent: int) -> tuple[bytes | int, ...]:
        match part:
            case bytes():
                return (part,)
            case Label(text):
                return (hashed("label", text),)
            case ValuePart(name=name) if name:
                return hashed("label", name), self._refer(part, parent)
            case ValuePart():
                return (self._refer(part, parent),)
        return (self._refer(ValuePart(part), parent),)

    def _refer(self, part: ValuePart, parent: int) -> bytes | int:
        value = part.value
        leaf = leaf_of(value)
        if leaf is not None:
            digest = hashed(leaf)
            if type(value) is str and value.startswith(os.sep):
                self._paths[digest] = value
            return digest
        number = self._numbers.get(id(value))
        if number is None:
            number = len(self._nodes)
            self._numbers[id(value)] = number
            self._values.append(value)
            self._nodes.append(ObjectNode("", ()))
            self._parents.append((parent, part.where))
            self._open.append(number)
        return number

    def _resolved(self) -> list[ObjectNode]:
        """Return the nodes, with paths in the user's folders made relative, because these folders may move."""
        moved = {digest: hashed("path", self.relative(path)) for digest, path in self._paths.items()}
        return [
            node._replace(parts=[moved.get(part, part) if isinstance(part, bytes) else part for part in node.parts])
            for node in self._nodes
        ]

    def relative(self, path: str) -> str:
        """Return a path relative to a folder of the user's code, or to its parent."""
        for folder in sorted(self.folders, key=len, reverse=True):
            above = os.path.dirname(folder)
            if path == folder or path.startswith(folder + os.sep):
                return "." + path[len(folder) :]
            if len(PurePath(above).parts) > 2 and (path == above or path.startswith(above + os.sep)):
                return ".." + path[len(above) :]
        return path


def leaf_of(value: object) -> str | bytes | None:
    """Return a unique representation of a plain value; None for a value with parts."""
    match value:
        case None | bool() | types.EllipsisType() | types.NotImplementedType():
            return f"single:{value!r}"
        case int() | float() | complex() if type(value) in (int, float, complex):
            return f"{type(value).__name__}:{value!r}"
        case str() if type(value) is str:
            return f"str:{value}"
        case bytes() if type(value) is bytes:
            return b"bytes:" + value
        case range():
            return f"range:{value!r}"
        case slice() if all(isinstance(end, int | None) for end in (value.start, value.stop, value.step)):
            return f"slice:{value!r}"
    return None
