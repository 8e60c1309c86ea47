"""Which layouts the profiler measures, given what it has measured."""

from __future__ import annotations

from math import inf

from hoptree.backends.layout_times import LayoutTimes
from hoptree.core.layout_choice import Candidate, LayoutOptions
from hoptree.core.layouts import Layout
from hoptree.worker.messages import BatchesMeasured

OPTIONS = LayoutOptions(("single", "data", "sharded"), (False, True), (False, True))


def measured(seconds: float, peak: int = 100) -> BatchesMeasured:
    return BatchesMeasured(seconds, 30, peak, {"width": 8}, "cpu", layouts=OPTIONS)


TOO_LARGE = BatchesMeasured(error="out of memory", too_large=True)


def candidate(name: str, devices: int = 1) -> Candidate:
    return Candidate(Layout.parse(name), devices)


def test_copies_are_measured_as_long_as_they_pay() -> None:
    found = LayoutTimes(0)
    found.add(candidate("single"), measured(8.0))
    assert found.pays(1)
    found.add(candidate("data", 2), measured(5.0))
    assert found.pays(2)
    found.add(candidate("data", 4), measured(4.9))
    assert not found.pays(4)
    assert not found.pays(8)


def test_copies_of_what_does_not_fit_are_not_measured() -> None:
    found = LayoutTimes(100)
    found.add(candidate("single"), TOO_LARGE)
    assert not found.pays(1)


def test_an_option_that_saves_no_memory_is_not_combined_with_others() -> None:
    found = LayoutTimes(0)
    found.add(candidate("single"), measured(1.0, 100))
    found.add(candidate("single+checkpoint"), measured(2.0, 110))
    assert found.is_of_use(candidate("single+offload"))
    assert not found.is_of_use(candidate("single+offload+checkpoint"))
    found.add(candidate("single+checkpoint"), measured(2.0, 90))
    assert found.is_of_use(candidate("single+offload+checkpoint"))


def test_a_layout_that_a_model_cannot_have_is_not_measured_with_options() -> None:
    found = LayoutTimes(0)
    found.add(candidate("single"), measured(1.0))
    found.add(candidate("sharded", 2), BatchesMeasured(error="TrainerError: …"))
    assert not found.is_of_use(candidate("sharded+offload", 2))
    assert not found.is_of_use(candidate("sharded", 4))
    found.add(candidate("sharded", 2), TOO_LARGE)
    assert found.is_of_use(candidate("sharded+offload", 2))


def test_what_does_not_fit_costs_infinity_with_the_limit_and_the_architecture() -> None:
    found = LayoutTimes(300)
    found.add(candidate("single"), TOO_LARGE)
    found.add(candidate("single+offload"), measured(2.0, 50))
    found.add(candidate("sharded", 2), BatchesMeasured(error="TrainerError: …"))
    large, fits = found.entries()
    assert (large.layout, large.seconds, large.peak_bytes, large.values, large.kind) == (
        "single",
        inf,
        300,
        {"width": 8},
        "cpu",
    )
    assert (fits.layout, fits.seconds, fits.peak_bytes) == ("single+offload", 2.0, 50)
