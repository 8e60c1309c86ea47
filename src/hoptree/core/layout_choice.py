"""Which layout a unit gets: the fastest one that is not known to exceed the memory limit.

A unit that runs out of memory says so in its failure. The layout then counts as too large for all configs of the
same architecture, and the unit is trained in the next one. The bits of a model do not depend on its layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import NamedTuple, TypeAlias, final

import msgspec

from hoptree.core.layouts import DATA, SINGLE, Layout
from hoptree.core.lineage import Values
from hoptree.core.nodes import Node
from hoptree.core.profile import Profile, ProfileEntry, is_faster
from hoptree.core.schedules import Scalar

_OPTIONS = ((False, False), (False, True), (True, False), (True, True))  # offload, checkpoint: least memory last


class Candidate(NamedTuple):
    """A layout, and how many workers of one machine hold the model in it."""

    layout: Layout = Layout()
    devices: int = 1


class Shortage(NamedTuple):
    """The limit of a worker that ran out of memory, and what it asked for in vain, in bytes; 0 if unknown."""

    limit: int = 0
    asked: int = 0


class LayoutOptions(msgspec.Struct, frozen=True):
    """The layouts that are possible: what the trainer can do with its models, and what the user has fixed.

    ``offload`` and ``checkpoint`` are the values of these options that are possible. ``irrelevant`` are the values
    of a config on which its memory does not depend.
    """

    kinds: tuple[str, ...] = (SINGLE, DATA)
    offload: tuple[bool, ...] = (False,)
    checkpoint: tuple[bool, ...] = (False,)
    irrelevant: tuple[str, ...] = ()

    def candidates(self, widest: int) -> Iterator[Candidate]:
        """Yield the layouts, those that need least memory last.

        >>> [(each.layout.name, each.devices) for each in LayoutOptions(("single", "sharded")).candidates(4)]
        [('single', 1), ('sharded', 2), ('sharded', 4)]
        """
        alone = [kind for kind in (SINGLE,) if SINGLE in self.kinds or DATA in self.kinds]
        divided = [kind for kind in self.kinds if kind not in (SINGLE, DATA)]
        for offload in self.offload:
            options = [pair for pair in _OPTIONS if pair[0] == offload and pair[1] in self.checkpoint]
            yield from (Candidate(Layout(kind, *pair)) for pair in options for kind in alone)
            for pair in options:
                for kind in divided:
                    yield from (Candidate(Layout(kind, *pair), width) for width in _widths(widest))


Architecture: TypeAlias = tuple[tuple[str, Scalar], ...]


@final
class LayoutChoice:
    """Chooses layouts for up to ``widest`` workers, each with a memory ``limit`` (0: none that is known).

    ``profile`` has what earlier runs have found: times of layouts, and layouts that did not fit.
    """

    def __init__(self, widest: int = 1, limit: int = 0, profile: Profile = Profile()) -> None:  # noqa: B008 frozen
        self.limit = limit
        self._widest = widest
        self._profile = profile
        self._options = LayoutOptions()
        self._candidates = [Candidate()]
        self.is_trivial = True  # whether the only one is the whole model in the memory of a worker
        self._too_large: dict[Architecture, dict[Candidate, Shortage]] = {}
        self._known: dict[Values, tuple[Architecture, list[Candidate]]] = {}
        self._resumed: list[tuple[Node, Candidate, Shortage]] = []

    def resume(self, tried: Iterable[tuple[Node, Candidate, Shortage]]) -> None:
        """Exclude what an earlier run has tried in vain with this limit, or a larger one, or without as now."""
        self._resumed += [each for each in tried if _is_as_short(each[2].limit, self.limit)]
        self._exclude_resumed()

    def _exclude_resumed(self) -> None:
        for node, candidate, shortage in self._resumed:
            self._too_large.setdefault(self._of(node)[0], {})[candidate] = shortage

    def offer(self, options: LayoutOptions) -> None:
        """Use these layouts from now on."""
        candidates = list(options.candidates(self._widest))
        if candidates:
            self._options, self._candidates = options, candidates
            self.is_trivial = candidates == [Candidate()]
            self._known.clear()
            self._exclude_resumed()  # which values are irrelevant is known only now

    @property
    def only(self) -> Candidate | None:
        """The layout of all units, if there is just one and any worker can train with it alone."""
        first = self._candidates[0]
        return first if len(self._candidates) == 1 and first.devices == 1 else None

    def choose(self, node: Node, is_possible: Callable[[int], bool]) -> Candidate:
        """Return the first layout that may fit; ``is_possible`` says whether there are so many workers.

        If none is left, return the last one: another attempt may find more memory.
        """
        if not self._too_large and not self._profile.entries:
            first = self._candidates[0]
            if is_possible(first.devices):
                return first
        ordered = self._of(node)[1]
        possible = [each for each in ordered if is_possible(each.devices)]
        too_large = self._too_large.get(self._of(node)[0], {})
        left = [each for each in possible if each not in too_large]
        return left[0] if left else (possible or ordered)[-1]

    def needs_several(self, node: Node) -> bool:
        """Return whether a unit has to wait for several workers."""
        return self._widest > 1 and self.choose(node, lambda devices: devices <= self._widest).devices > 1

    def widest_copies(self, node: Node, candidate: Candidate, width: int) -> int:
        """Return how many workers, at most ``width``, can train copies of a model that has this layout."""
        fixed = SINGLE not in self._options.kinds
        if DATA not in self._options.kinds or candidate.devices > 1 or (candidate.layout.offload and not fixed):
            return 1
        if not self._too_large:
            return width
        copies = _copies(candidate.layout)
        too_large = self._too_large.get(self._of(node)[0], {})
        return min([width, *(each.devices // 2 for each in too_large if each.layout == copies)])

    def exclude(self, node: Node, tried: Candidate, shortage: Shortage, is_possible: Callable[[int], bool]) -> bool:
        """Note that a layout did not fit; return whether one is left for which there are enough workers."""
        architecture, candidates = self._of(node)
        too_large = self._too_large.setdefault(architecture, {})
        too_large[tried] = shortage
        return any(each not in too_large and is_possible(each.devices) for each in candidates)

    def describe(self, node: Node) -> str:
        """Return the layouts that did not fit a config, one line each, with how much memory was missing."""
        too_large = self._too_large.get(self._of(node)[0], {})
        return "\n".join(
            f"  {each.layout.name}{f' on {each.devices} workers' if each.devices > 1 else ''}: {_missing(shortage)}"
            for each, shortage in too_large.items()
        )

    def architecture(self, node: Node) -> dict[str, Scalar]:
        """Return the values of a config on which its memory depends."""
        return dict(self._of(node)[0])

    def _of(self, node: Node) -> tuple[Architecture, list[Candidate]]:
        """Return the architecture of a config, and its candidates in the order in which they are tried."""
        found = self._known.get(node.values)
        if found is None:
            constants = node.values.constants()
            relevant = {name: constants[name] for name in constants if name not in self._options.irrelevant}
            architecture = tuple(sorted(relevant.items()))
            entries = [entry for entry in self._profile.entries if entry.covers(constants)]
            for entry in entries:
                if is_too_large(entry, self.limit):
                    candidate = Candidate(Layout.parse(entry.layout), entry.devices)
                    self._too_large.setdefault(architecture, {})[candidate] = Shortage(entry.peak_bytes)
            found = self._known[node.values] = (
                architecture,
                _fastest_first(_undominated(self._candidates, entries), entries),
            )
        return found


def is_too_large(entry: ProfileEntry, limit: int) -> bool:
    """Return whether a layout that did not fit once does not fit with a memory limit either (0: none)."""
    return not entry.fits and (not entry.peak_bytes or 0 < limit <= entry.peak_bytes)


def _is_as_short(before: int, now: int) -> bool:
    """Return whether a limit leaves no more memory than one before (0: none that is known)."""
    return 0 < now <= before if before else not now


def readable_bytes(size: int) -> str:
    """Return a size for a message.

    >>> readable_bytes(1_500_000_000), readable_bytes(300_000_000)
    ('1.50 GB', '300 MB')
    """
    return f"{size / 1e9:.2f} GB" if size >= 10**9 else f"{size / 1e6:.0f} MB"


def _fastest_first(candidates: Sequence[Candidate], entries: Iterable[ProfileEntry]) -> list[Candidate]:
    """Sort those candidates of each number of devices whose times are known; the others keep their places.

    A layout comes before a simpler one only if it is clearly faster: times are noisy.
    """
    seconds = {Candidate(Layout.parse(each.layout), each.devices): each.seconds for each in entries}
    found = list(candidates)
    for devices in sorted({each.devices for each in candidates}):
        places = [i for i, each in enumerate(found) if each.devices == devices and seconds.get(each, inf) < inf]
        ordered: list[Candidate] = []
        for each in (found[i] for i in places):
            slower = (i for i, other in enumerate(ordered) if is_faster(seconds[each], seconds[other]))
            ordered.insert(next(slower, len(ordered)), each)
        for place, each in zip(places, ordered, strict=True):
            found[place] = each
    return found


def _undominated(candidates: Sequence[Candidate], entries: Sequence[ProfileEntry]) -> list[Candidate]:
    """Leave out layouts that are slower than another one and need more memory."""
    known = {Candidate(Layout.parse(each.layout), each.devices): each for each in entries}
    offered = [known[each] for each in candidates if each in known]
    worse = [each for each in offered if any(each.is_dominated_by(other) for other in offered)]
    return [each for each in candidates if known.get(each) not in worse]


def _copies(layout: Layout) -> Layout:
    return Layout(DATA, layout.offload, layout.checkpoint)


def _widths(widest: int) -> Iterator[int]:
    width = 2
    while width <= widest:
        yield width
        width *= 2


def _missing(shortage: Shortage) -> str:
    parts = [f"a worker may use {readable_bytes(shortage.limit)}"] if shortage.limit else []
    parts += [f"it asked for {readable_bytes(shortage.asked)} more"] if shortage.asked else []
    return ", and ".join(parts) or "there was not enough memory"
