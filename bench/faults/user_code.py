"""User code that misbehaves in some trials, and a closed output: the other trials are not affected."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.faults.acts import ACTS, NAN
from bench.faults.kinds import Kind
from bench.faults.run import Run

FINE = "fine"
ALL = [FINE, *ACTS, NAN]
_COMPLETE = {"complete"}
_FAILED = {"failed"}
# how trials with an act may end; those that complete have the weights of the same config behaving well
ENDINGS: dict[str, set[str]] = {
    "leaves-children": _COMPLETE,
    "leaves-thread": _COMPLETE,
    "closes-output": _COMPLETE,
    NAN: _COMPLETE,
    "forks": _FAILED | _COMPLETE,
    "limits-files": _FAILED | _COMPLETE,
    "interrupts-itself": _FAILED | _COMPLETE,
}
_OPTIONS: dict[str, dict[str, Any]] = {"hangs": {"run": {"unit_limit": 3.0}}}


def misbehave(run: Run, act: str) -> None:
    """Have some trials do this in their second unit."""
    run.free = {act: ENDINGS.get(act, _FAILED)}
    run.begin()


def close_pipe(run: Run) -> None:
    """Stop reading the driver's output, as ``| head`` does: it continues."""
    driver = run.start(pipe=True)
    run.moment(0.0, 0.9, driver)
    assert driver.process.stdout is not None
    assert driver.process.stderr is not None
    driver.process.stdout.close()
    driver.process.stderr.close()
    run.note("output closed")


KINDS = {
    **{
        f"code-{act}": Kind(
            partial(misbehave, act=act), {"halving": False, "acts": [FINE, act], **_OPTIONS.get(act, {})}
        )
        for act in [*ACTS, NAN]
    },
    "output-closed": Kind(close_pipe),
}
