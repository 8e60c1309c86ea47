"""What a config takes in each layout that was measured, and which others are worth measuring."""

from __future__ import annotations

from importlib.metadata import version
from math import inf
from typing import final

from hoptree.core.layout_choice import Candidate, LayoutOptions
from hoptree.core.layouts import DATA, Layout
from hoptree.core.profile import ProfileEntry, is_faster
from hoptree.core.schedules import Scalar
from hoptree.worker.messages import BatchesMeasured


@final
class LayoutTimes:
    """The measurements of one config; ``memory`` is the limit of a worker in bytes, 0 for none."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._found: dict[Candidate, BatchesMeasured] = {}
        self._values: dict[str, Scalar] = {}
        self._kind = ""
        self.options: LayoutOptions | None = None  # the layouts that the model can have, once it was built
        self.examples = 0

    def add(self, candidate: Candidate, measured: BatchesMeasured) -> None:
        """Note a measurement, also one that has failed."""
        self._found[candidate] = measured
        if self.options is None and not measured.error:
            self.options, self.examples = measured.layouts, measured.examples
            self._values, self._kind = measured.architecture, measured.kind

    def pays(self, devices: int) -> bool:
        """Return whether copies on more devices may be faster: those so far are, each than half of them."""
        now, half = self._copies(devices), self._copies(devices // 2)
        if now is None or now.error:
            return False
        return devices == 1 or half is None or is_faster(now.seconds, half.seconds)

    def is_of_use(self, candidate: Candidate) -> bool:
        """Return whether a layout was not measured, and no simpler one shows that it is slower and no smaller.

        Options that save no memory by themselves save none with others; nor does a model that is divided further.
        """
        if candidate in self._found:
            return False
        simpler = [Candidate(layout, candidate.devices) for layout in _simpler(candidate.layout)]
        if candidate.devices > 2:
            simpler.append(Candidate(candidate.layout, candidate.devices // 2))
        return all(self._saves_memory(each) for each in simpler if each in self._found)

    def _saves_memory(self, candidate: Candidate) -> bool:
        measured = self._found[candidate]
        if measured.error:
            return measured.too_large  # otherwise the model cannot be trained so
        entry = self._entry(candidate, measured)
        others = [self._entry(each, other) for each, other in self._found.items()]
        return not any(entry.is_dominated_by(other) for other in others)

    def _copies(self, devices: int) -> BatchesMeasured | None:
        return self._found.get(Candidate() if devices == 1 else Candidate(Layout(DATA), devices))

    def entries(self) -> list[ProfileEntry]:
        """Return the measurements, and the layouts that did not fit; without those that failed otherwise."""
        return [
            self._entry(candidate, measured)
            for candidate, measured in self._found.items()
            if not measured.error or measured.too_large
        ]

    def _entry(self, candidate: Candidate, measured: BatchesMeasured) -> ProfileEntry:
        seconds = inf if measured.error else measured.seconds
        peak = self._memory if measured.error else measured.peak_bytes
        name = candidate.layout.name
        return ProfileEntry(self._values, name, candidate.devices, self._kind, seconds, peak, version("hoptree"))


def _simpler(layout: Layout) -> list[Layout]:
    """Return the layouts with one option less.

    >>> [each.name for each in _simpler(Layout("single", offload=True, checkpoint=True))]
    ['single+checkpoint', 'single+offload']
    """
    without = [Layout(layout.kind, False, layout.checkpoint), Layout(layout.kind, layout.offload, False)]
    return [each for each in without if each != layout]
