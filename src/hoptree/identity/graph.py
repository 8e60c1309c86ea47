"""Digests of a graph of objects that may contain cycles, with each object counted once.

An object's digest covers its own parts and everything that it reaches. The objects of a strongly connected
component get their digests together: their equivalence classes are refined until they no longer change. So the
result depends neither on the order of the walk nor on the identity of objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple, TypeAlias


class ObjectNode(NamedTuple):
    """An object: digests of its own content, and the numbers of the objects it refers to, in order."""

    kind: str
    parts: Sequence[bytes | int]
    owner: str = ""  # the user's module that defines it, "" for values
    ordered: bool = True


Replace: TypeAlias = Callable[[int], "bytes | None"]


def hashed(*parts: str | bytes) -> bytes:
    """Return a hash of texts and bytes that includes the length of each."""
    total = blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.digest()


def digests(nodes: Sequence[ObjectNode], replaced: Replace | None = None) -> list[bytes]:
    """Return the digest of every node; a node for which ``replaced`` returns bytes is represented by these."""
    known = [replaced(number) if replaced is not None else None for number in range(len(nodes))]
    for group in _components(nodes, known):
        if len(group) == 1 and group[0] not in nodes[group[0]].parts:
            known[group[0]] = _combined(nodes[group[0]], known)
        else:
            _refine(nodes, group, known)
    return [digest for digest in known if digest is not None]


def _combined(node: ObjectNode, known: Sequence[bytes | None]) -> bytes:
    parts = [part if isinstance(part, bytes) else known[part] or b"" for part in node.parts]
    return hashed(node.kind, *(parts if node.ordered else sorted(parts)))


def _refine(nodes: Sequence[ObjectNode], group: list[int], known: list[bytes | None]) -> None:
    """Compute the digests of a cycle's nodes: two rounds if all differ in their own parts, as functions do."""
    classes = 0
    for number in group:
        known[number] = b""
    while True:
        new = {number: hashed(known[number] or b"", _combined(nodes[number], known)) for number in group}
        for number, digest in new.items():
            known[number] = digest
        if (found := len(set(new.values()))) == classes:
            break
        classes = found
    together = hashed(*sorted(set(new.values())))
    for number, digest in new.items():
        known[number] = hashed(digest, together)


def _components(nodes: Sequence[ObjectNode], known: Sequence[bytes | None]) -> Iterator[list[int]]:
    """Yield the strongly connected components, each after all that it refers to (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    open_nodes: list[int] = []
    is_open: set[int] = set()
    for start in range(len(nodes)):
        if start in index or known[start] is not None:
            continue
        index[start] = low[start] = len(index)
        open_nodes.append(start)
        is_open.add(start)
        work = [(start, iter(nodes[start].parts))]
        while work:
            number, rest = work[-1]
            for part in rest:
                if isinstance(part, bytes) or known[part] is not None:
                    continue
                if part not in index:
                    index[part] = low[part] = len(index)
                    open_nodes.append(part)
                    is_open.add(part)
                    work.append((part, iter(nodes[part].parts)))
                    break
                if part in is_open:
                    low[number] = min(low[number], index[part])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[number])
                if low[number] == index[number]:
                    group: list[int] = []
                    while not group or group[-1] != number:
                        group.append(open_nodes.pop())
                        is_open.discard(group[-1])
                    yield group
