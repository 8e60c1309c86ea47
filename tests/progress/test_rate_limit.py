"""How often something is done: by the processor's time that it takes, and at least every second."""

from __future__ import annotations

from hoptree.progress.rate_limit import RateLimit


class Made:
    """A clock and a processor time that are set by hand."""

    def __init__(self, share: float, shortest: float = 0.0) -> None:
        self.now = self.spent = 0.0
        self.pace = RateLimit(share, lambda: self.now, lambda: self.spent, shortest)

    def do(self, processor: float, clock: float) -> None:
        with self.pace:
            self.spent += processor
            self.now += clock

    def waits(self, seconds: float) -> bool:
        """Return whether it is due after some seconds, and not before."""
        before = self.pace.is_due
        self.now += seconds
        return not before and self.pace.is_due


def test_a_short_load_peak_does_not_slow_the_display_down() -> None:
    made = Made(share=0.02, shortest=0.25)
    assert made.pace.is_due
    made.do(processor=0.001, clock=0.5)  # somebody else had the processor
    assert made.waits(0.25)


def test_slow_updates_are_made_less_often_but_at_least_every_second() -> None:
    made = Made(share=0.02)
    made.do(processor=0.01, clock=0.01)
    assert made.waits(0.5)
    made.do(processor=0.5, clock=0.5)
    assert made.waits(1.0)
